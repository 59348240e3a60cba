/* SPDX-License-Identifier: Apache-2.0 */
#include "ldmdlog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/feedtype.h"

/* Parses "YYYYMMDDThhmmss.ffffff", or without the T; `used` is its length. */
static bool take_time(const char *text, const char *form, struct timeval *out, size_t *used)
{
    struct tm tm = {0};
    const char *end = strptime(text, form, &tm);

    if (!end || end[0] != '.' || strspn(end + 1, "0123456789") < 6)
        return false;
    *out = (struct timeval){.tv_sec = timegm(&tm)};
    for (int i = 1; i <= 6; i++)
        out->tv_usec = 10 * out->tv_usec + (end[i] - '0');
    *used = (size_t)(end - text) + 7;
    return true;
}

/* Parses %10u YYYYMMDDhhmmss.uuuuuu FEED %03u  ident. */
static bool take_product(const char *text, struct arrival *out)
{
    text += strspn(text, " ");
    errno = 0;
    char *end;
    unsigned long bytes = strtoul(text, &end, 10);
    size_t used;
    if (end == text || *text == '-' || *end != ' ' || errno != 0 || bytes > UINT32_MAX ||
        !take_time(end + 1, "%Y%m%d%H%M%S", &out->creation, &used))
        return false;
    out->bytes = (uint32_t)bytes;
    text = end + 1 + used;
    char feed[FEEDTYPE_TEXT_MAX], why[300];
    return sscanf(text, " %319s", feed) == 1 && feedtype_parse(feed, &out->feed, why, sizeof why);
}
_Static_assert(FEEDTYPE_TEXT_MAX == 320, "the 319 above");

/* Parses "0.001701 s, index: 0, retrans: 6, info: ..."; returns the product's text or NULL. */
static const char *take_delay(const char *text, struct arrival *out)
{
    bool negative = *text == '-';
    text += negative;
    size_t whole = strspn(text, "0123456789");
    if (whole == 0 || whole > 9)
        return NULL;
    int64_t us = 1000000 * (int64_t)strtoul(text, NULL, 10);
    text += whole;
    if (*text == '.') {
        size_t digits = strspn(++text, "0123456789");
        int64_t unit = 100000;
        for (size_t i = 0; i < digits && unit > 0; i++, unit /= 10)
            us += unit * (text[i] - '0');
        text += digits;
    }
    out->delay_us = negative ? -us : us;
    char *end;
    const char *retrans = strstr(text, ", retrans: ");
    const char *info = strstr(text, ", info: \"");
    if (!retrans || !info || retrans > info)
        return NULL;
    errno = 0;
    unsigned long blocks = strtoul(retrans + 11, &end, 10);
    if (end != info || retrans[11] == '-' || errno != 0 || blocks > UINT32_MAX)
        return NULL;
    out->retrans = (uint32_t)blocks;
    return info + 9;
}

const char *ldmdlog_message(const char *line, const char *program, struct timeval *at, long *pid)
{
    enum { TIME = 22 }; /* bytes of YYYYMMDDThhmmss.ffffff */
    size_t used, bytes = strlen(program);

    if (strnlen(line, TIME + 2) < TIME + 2 || strncmp(line + TIME, "Z ", 2) != 0 ||
        strncmp(line + TIME + 2, program, bytes) != 0 || line[TIME + 2 + bytes] != '[' ||
        !take_time(line, "%Y%m%dT%H%M%S", at, &used) || used != TIME)
        return NULL;
    const char *p = line + TIME + 3 + bytes;
    *pid = strtol(p, NULL, 10);
    /* After "]   file:function:line   LEVEL". */
    if (!(p = strstr(p, "]   ")) || !(p = strstr(p + 4, "   ")) || !(p = strchr(p + 3, ' ')))
        return NULL;
    return p + 1;
}

bool ldmdlog_arrival(const char *line, struct arrival *out)
{
    long pid;
    const char *p = ldmdlog_message(line, "down7", &out->at, &pid);

    if (!p)
        return false;
    if (strncmp(p, "Received: {", 11) == 0) {
        out->by_fmtp = true;
        p = strncmp(p + 11, "delay: ", 7) == 0 ? take_delay(p + 18, out) : NULL;
        return p && take_product(p, out);
    }
    out->by_fmtp = false;
    out->delay_us = 0;
    out->retrans = 0;
    return strncmp(p, "Inserted: ", 10) == 0 && take_product(p + 10, out);
}

static int open_file(struct ldmdlog *l)
{
    l->file = fopen(l->path, "re");
    if (!l->file)
        return -1;
    struct stat st;
    l->inode = fstat(fileno(l->file), &st) == 0 ? st.st_ino : 0;
    return 0;
}

int ldmdlog_open(struct ldmdlog *l, const char *path)
{
    *l = (struct ldmdlog){.path = path};
    return open_file(l);
}

/* Returns whether the file was rotated (another file has the name now) or truncated. */
static bool replaced(struct ldmdlog *l)
{
    struct stat st;

    return stat(l->path, &st) == 0 &&
           (st.st_ino != l->inode || (l->file && st.st_size < ftell(l->file)));
}

const char *ldmdlog_line(struct ldmdlog *l)
{
    for (;;) {
        if (!l->file && open_file(l) < 0)
            return NULL;
        while (fgets(l->line + l->used, (int)(sizeof l->line - l->used), l->file)) {
            l->used += strlen(l->line + l->used);
            if (!l->used) /* it begins with a NUL */
                continue;
            if (l->line[l->used - 1] == '\n' || l->used == sizeof l->line - 1) {
                l->used = 0;
                return l->line;
            }
        }
        clearerr(l->file);
        if (!replaced(l))
            return NULL;
        fclose(l->file);
        l->file = NULL;
        l->used = 0;
    }
}

void ldmdlog_close(struct ldmdlog *l)
{
    if (l->file)
        fclose(l->file);
    l->file = NULL;
}
