/* SPDX-License-Identifier: Apache-2.0 */
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *program = "downpour";
volatile int stop_requested;
static bool line_shown;

static void complain(const char *format, va_list args)
{
    progress("%s", "");
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(format, args);
    va_end(args);
    exit(EXIT_FAILURE);
}

void die_usage(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(format, args);
    va_end(args);
    fprintf(stderr, "Try '%s --help'.\n", program);
    exit(EXIT_USAGE);
}

void *xcalloc(size_t n, size_t bytes)
{
    void *p = calloc(n > 0 ? n : 1, bytes > 0 ? bytes : 1);

    if (!p)
        die("out of memory");
    return p;
}

void *xreallocarray(void *old, size_t n, size_t bytes)
{
    void *p = reallocarray(old, n, bytes);

    if (!p && n > 0 && bytes > 0)
        die("out of memory");
    return p;
}

char *xstrdup(const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        die("out of memory");
    return copy;
}

/* Returns the insertions, deletions and replacements that turn one name into the other (Levenshtein
 * distance). Names longer than NAME_MAX_BYTES are far from all. */
static unsigned distance(const char *a, const char *b)
{
    enum { NAME_MAX_BYTES = 40 };
    unsigned row[NAME_MAX_BYTES + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > NAME_MAX_BYTES || m > NAME_MAX_BYTES)
        return UINT32_MAX;
    for (unsigned j = 0; j <= m; j++)
        row[j] = j;
    for (unsigned i = 1; i <= n; i++) {
        unsigned corner = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= m; j++) {
            unsigned cost = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            unsigned step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = cost < step ? cost : step;
        }
    }
    return row[m];
}

static _Noreturn void die_unknown(const char *text, const struct option *options)
{
    char valid[1024] = "", name[64];
    const char *nearest = NULL;
    size_t least = SIZE_MAX;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    for (const struct option *o = options; o->name; o++) {
        size_t used = strlen(valid);
        size_t far = distance(name + strspn(name, "-"), o->name);
        snprintf(valid + used, sizeof valid - used, "%s--%s", used ? ", " : "", o->name);
        if (far < least && 2 * far <= strlen(o->name)) {
            least = far;
            nearest = o->name;
        }
    }
    if (nearest)
        die_usage("found option '%s'; nearest: --%s", text, nearest);
    die_usage("found option '%s'; valid: %s", text, valid);
}

int next_option(int argc, char **argv, const struct option *options)
{
    opterr = 0;
    optopt = 0;
    int c = getopt_long(argc, argv, ":", options, NULL);
    if (c != '?' && c != ':')
        return c;
    const char *text = optind > 0 && optind <= argc ? argv[optind - 1] : "";
    const struct option *o = options;
    while (o->name && (!optopt || o->val != optopt))
        o++;
    if (c == ':')
        die_usage("found option '%s' without a value; valid: --%s VALUE", text, o->name);
    if (o->name)
        die_usage("found option '%s' with a value; valid: --%s", text, o->name);
    const char letter[] = {'-', (char)optopt, '\0'};
    die_unknown(optopt ? letter : text, options);
}

struct sockaddr_storage parse_ip(const char *option, const char *text)
{
    struct sockaddr_storage a;

    if (tp_address_parse(text, false, &a) < 0)
        die_usage("%s '%s'; valid: an address such as 10.0.0.1, fd00::1 or fe80::1%%eth0", option,
                  text);
    return a;
}

uint64_t parse_number(const char *option, const char *text, uint64_t min, uint64_t max)
{
    char *end = NULL;
    uint64_t factor = 1;

    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (end != text && *end) {
        factor = *end == 'k' ? 1000 : *end == 'M' ? 1000000 : *end == 'G' ? 1000000000 : 0;
        end++;
    }
    if (*text < '0' || *text > '9' || errno || *end || !factor || n > max / factor ||
        n * factor < min)
        die_usage("%s '%s'; valid: whole numbers from %llu to %llu, also with k, M or G", option,
                  text, (unsigned long long)min, (unsigned long long)max);
    return n * factor;
}

void check_output(void)
{
    bool failed = ferror(stdout);

    if (fflush(stdout) != 0 || failed)
        die("standard output: %s", strerror(errno));
}

double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_signal(int number)
{
    (void)number;
    stop_requested = 1;
}

void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void progress(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char text[160];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if ((!*text && !line_shown) || !isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
    line_shown = *text != 0;
}
