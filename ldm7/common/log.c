/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "queue/own_pid.h"

enum { PROG_MAX = 64, PATH_BYTES = 4096 };

static const char *const level_names[] = {"ERROR", "WARN", "NOTE", "INFO", "DEBUG"};
static const int syslog_levels[] = {LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG};

static enum log_level threshold = LOG_LVL_NOTE;
static bool json_lines, to_syslog;
static int log_fd = STDERR_FILENO;
static char log_path[PATH_BYTES];
static char prog[PROG_MAX] = "?";

/* The memory of the original argument vector, and the arguments after the name. */
static char *area;
static size_t area_bytes;
static int kept_argc;
static char **kept_argv;

static void set_prog_text(const char *name)
{
    snprintf(prog, sizeof prog, "%s", name);
}

void log_init(int argc, char ***argv)
{
    char **old = *argv;
    const char *slash = argc > 0 ? strrchr(old[0], '/') : NULL;
    if (argc < 1)
        return;
    set_prog_text(slash ? slash + 1 : old[0]);
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    if (!copy)
        return;
    for (int i = 0; i < argc; i++) {
        copy[i] = strdup(old[i]);
        if (!copy[i]) {
            while (i > 0)
                free(copy[--i]);
            free(copy);
            return;
        }
    }
    char *end = old[0];
    for (int i = 0; i < argc && old[i] == end; i++)
        end += strlen(old[i]) + 1;
    area = old[0];
    area_bytes = (size_t)(end - old[0]);
    kept_argc = argc;
    kept_argv = copy;
    *argv = copy;
}

void log_set_prog(const char *name)
{
    set_prog_text(name);
    prctl(PR_SET_NAME, prog, 0, 0, 0);
    if (!area_bytes)
        return;
    memset(area, 0, area_bytes);
    size_t used = 0;
    for (int i = 0; i < kept_argc && used + 1 < area_bytes; i++) {
        const char *word = i ? kept_argv[i] : prog;
        used += (size_t)snprintf(area + used, area_bytes - used, "%s", word) + 1;
    }
}

const char *log_prog(void)
{
    return prog;
}

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
}

static void use(int fd, bool syslogging)
{
    if (log_fd > STDERR_FILENO)
        close(log_fd);
    log_fd = fd;
    to_syslog = syslogging;
}

int log_set_destination(const char *dest)
{
    if (strcmp(dest, "-") == 0) {
        use(STDERR_FILENO, false);
        log_path[0] = 0;
        return 0;
    }
    if (!*dest) {
        use(STDERR_FILENO, true);
        log_path[0] = 0;
        openlog(NULL, LOG_NDELAY, LOG_LOCAL0);
        return 0;
    }
    if (strlen(dest) >= sizeof log_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = open_file(dest);
    if (fd < 0)
        return -1;
    use(fd, false);
    memcpy(log_path, dest, strlen(dest) + 1);
    return 0;
}

const char *log_file(void)
{
    return log_path;
}

int log_reopen(void)
{
    if (!log_path[0])
        return 0;
    int fd = open_file(log_path);
    if (fd < 0)
        return -1;
    use(fd, false);
    return 0;
}

void log_take_stderr(void)
{
    if (log_path[0])
        dup2(log_fd, STDERR_FILENO);
}

void log_set_level(enum log_level level)
{
    threshold = level;
}

enum log_level log_get_level(void)
{
    return threshold;
}

bool log_enabled(enum log_level level)
{
    return level <= threshold;
}

void log_set_json(bool json)
{
    json_lines = json;
}

bool log_set_format(const char *name)
{
    if (strcmp(name, "text") != 0 && strcmp(name, "json") != 0)
        return false;
    log_set_json(*name == 'j');
    return true;
}

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

/* A bounded line under construction. */
struct line {
    char *text;
    size_t used, room;
    bool cut;
};

static void put(struct line *l, const char *s, size_t n)
{
    if (l->cut || n > l->room - l->used) {
        l->cut = true;
        return;
    }
    memcpy(l->text + l->used, s, n);
    l->used += n;
}

static void putf(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void putf(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char tmp[512];
    int n = vsnprintf(tmp, sizeof tmp, fmt, ap);
    va_end(ap);
    if (n > 0)
        put(l, tmp, (size_t)n < sizeof tmp ? (size_t)n : sizeof tmp - 1);
}

size_t log_escape(char *out, size_t out_bytes, const char *text)
{
    size_t need = 0, used = 0;
    bool cut = out_bytes == 0;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        char unit[5] = {(char)*c};
        if (is_control(*c))
            snprintf(unit, sizeof unit, "\\x%02x", *c);
        size_t n = strlen(unit);
        need += n;
        if (cut || used + n >= out_bytes) {
            cut = true;
            continue;
        }
        memcpy(out + used, unit, n);
        used += n;
    }
    if (out_bytes)
        out[used] = 0;
    return need;
}

/* Returns the length of the well-formed UTF-8 sequence at s, or 0 (RFC 3629). */
static size_t utf8_length(const unsigned char *s)
{
    static const struct {
        unsigned char lead_min, lead_max, next_min, next_max;
        size_t length;
    } forms[] = {{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                 {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
                 {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
                 {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if (*s < forms[f].lead_min || *s > forms[f].lead_max)
            continue;
        if (s[1] < forms[f].next_min || s[1] > forms[f].next_max)
            return 0;
        for (size_t i = 2; i < forms[f].length; i++)
            if (s[i] < 0x80 || s[i] > 0xbf)
                return 0;
        return forms[f].length;
    }
    return 0;
}

static void put_json_string(struct line *l, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        if (*c == '"' || *c == '\\') {
            putf(l, "\\%c", *c++);
        } else if (is_control(*c)) {
            putf(l, "\\u%04x", *c++);
        } else if (*c < 0x80) {
            put(l, (const char *)c++, 1);
        } else {
            size_t n = utf8_length(c);
            if (n)
                put(l, (const char *)c, n);
            else
                put(l, "\\ufffd", 6);
            c += n ? n : 1;
        }
    }
}

static void write_line(const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(log_fd, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nowhere to complain */
        text += n;
        bytes -= (size_t)n;
    }
}

void log_msg(enum log_level level, const char *file, const char *func, int line, const char *fmt,
             ...)
{
    int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    char message[LOG_LINE_MAX];
    int n = vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (n < 0)
        snprintf(message, sizeof message, "(message that cannot be formatted: %s)", fmt);
    else if ((size_t)n >= sizeof message)
        memcpy(message + sizeof message - 4, "...", 4);
    const char *slash = strrchr(file, '/');
    const char *base = slash ? slash + 1 : file;

    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm tm;
    gmtime_r(&now.tv_sec, &tm);
    char when[32];
    strftime(when, sizeof when, "%Y%m%dT%H%M%S", &tm);

    /* At most six characters per character of the message, plus the rest of the line. */
    char text[6 * LOG_LINE_MAX + 1024];
    struct line l = {.text = text, .room = sizeof text - 1};
    if (json_lines) {
        putf(&l, "{\"time\":\"%s.%06ldZ\",\"prog\":\"", when, now.tv_nsec / 1000);
        put_json_string(&l, prog);
        putf(
            &l,
            "\",\"pid\":%ld,\"file\":\"%s\",\"function\":\"%s\",\"line\":%d,\"level\":\"%s\",\"message\":\"",
            (long)own_pid(), base, func, line, level_names[level]);
        put_json_string(&l, message);
        put(&l, "\"}", 2);
    } else {
        putf(&l, "%s.%06ldZ ", when, now.tv_nsec / 1000);
        l.used += log_escape(text + l.used, l.room - l.used, prog);
        putf(&l, "[%ld]   %s:%s:%d   %s ", (long)own_pid(), base, func, line, level_names[level]);
        l.used += log_escape(text + l.used, l.room - l.used, message);
    }
    if (to_syslog) {
        text[l.used] = 0;
        syslog(syslog_levels[level], "%s", text);
    } else {
        text[l.used++] = '\n';
        write_line(text, l.used);
    }
    errno = saved;
}
