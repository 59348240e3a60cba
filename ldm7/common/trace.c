/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

enum { MS_CHARS = 18, US_CHARS = 21 }; /* YYYYMMDDhhmmss.mmm, YYYYMMDDhhmmss.uuuuuu */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int64_t number(const char *s, size_t digits)
{
    int64_t n = 0;
    for (size_t i = 0; i < digits; i++)
        n = n * 10 + (s[i] - '0');
    return n;
}

/* Returns the days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from
 * March, so that the leap day is the last of its year. */
static int64_t days_from_epoch(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = year / 400, of_era = year % 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int64_t days_in(int64_t year, int64_t month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return month == 2 && leap ? 29 : days[month - 1];
}

static bool parse_time(const char *s, size_t len, int64_t *us)
{
    if ((len != MS_CHARS && len != US_CHARS) || s[14] != '.')
        return false;
    for (size_t i = 0; i < len; i++)
        if (i != 14 && !is_digit(s[i]))
            return false;
    int64_t year = number(s, 4), month = number(s + 4, 2), day = number(s + 6, 2);
    int64_t hour = number(s + 8, 2), minute = number(s + 10, 2), second = number(s + 12, 2);
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days_in(year, month) ||
        hour > 23 || minute > 59 || second > 59)
        return false;
    *us = (((days_from_epoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1000000;
    *us += len == US_CHARS ? number(s + 15, 6) : number(s + 15, 3) * 1000;
    return true;
}

static bool parse_size(const char *s, size_t len, uint32_t *size)
{
    if (len < 1 || len > 10)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_digit(s[i]))
            return false;
    int64_t n = number(s, len);
    *size = (uint32_t)n;
    return n >= 1 && n <= UINT32_MAX;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void quote(FILE *f, const char *s, size_t len)
{
    enum { SHOWN = 60 };
    fputc('"', f);
    for (size_t i = 0; i < len && i < SHOWN; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            fprintf(f, "\\x%02x", c);
        else
            fputc(c, f);
    }
    fputs(len > SHOWN ? "...\"" : "\"", f);
}

struct state {
    const char *name;
    FILE *errors;
    long bad;
    size_t line;
    int64_t last_us;
    char last[US_CHARS + 1];
    bool any;
};

static void complain(struct state *st, const char *s, size_t len, const char *valid,
                     const char *more)
{
    if (st->bad++ >= TRACE_ERRORS_SHOWN)
        return;
    fprintf(st->errors, "%s:%zu: found ", st->name, st->line);
    quote(st->errors, s, len);
    fprintf(st->errors, "; valid: %s%s\n", valid, more);
}

/* Parses one line without its end. Returns true if it holds a product. */
static bool parse_line(struct state *st, const char *s, size_t len, struct trace_entry *e)
{
    static const char form[] =
        "SIZE YYYYMMDDhhmmss.mmm, size 1 to 4294967295 bytes, a time that exists";
    while (len && (is_blank(s[len - 1]) || s[len - 1] == '\r'))
        len--;
    size_t at = 0;
    while (at < len && is_blank(s[at]))
        at++;
    if (at == len || s[at] == '#')
        return false;
    size_t size_at = at;
    while (at < len && !is_blank(s[at]))
        at++;
    size_t size_end = at;
    while (at < len && is_blank(s[at]))
        at++;
    if (!parse_size(s + size_at, size_end - size_at, &e->size_bytes) ||
        !parse_time(s + at, len - at, &e->time_us)) {
        complain(st, s, len, form, "");
        return false;
    }
    if (st->any && e->time_us < st->last_us) {
        complain(st, s, len, "a time not before that of the product above, ", st->last);
        return false;
    }
    e->line = (uint32_t)st->line;
    st->any = true;
    st->last_us = e->time_us;
    memcpy(st->last, s + at, len - at);
    st->last[len - at] = '\0';
    return true;
}

long trace_parse(const char *text, size_t bytes, const char *name, struct trace *out, FILE *errors)
{
    struct state st = {.name = name, .errors = errors};
    size_t room = 0;
    *out = (struct trace){0};
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t len = end ? (size_t)(end - text) - at : bytes - at;
        st.line++;
        struct trace_entry e;
        if (parse_line(&st, text + at, len, &e)) {
            if (out->count == room) {
                room = room ? 2 * room : 1024;
                struct trace_entry *more = realloc(out->entries, room * sizeof *more);
                if (!more) {
                    trace_free(out);
                    return -1;
                }
                out->entries = more;
            }
            out->entries[out->count++] = e;
            out->total_bytes += e.size_bytes;
        }
        at += len + 1;
    }
    if (!st.bad && !out->count) {
        fprintf(errors, "%s: found no product; valid: at least one line SIZE YYYYMMDDhhmmss.mmm\n",
                name);
        st.bad = 1;
    }
    if (st.bad > TRACE_ERRORS_SHOWN)
        fprintf(errors, "%s: %ld errors in all, the first %d are shown\n", name, st.bad,
                TRACE_ERRORS_SHOWN);
    if (st.bad)
        trace_free(out);
    return st.bad;
}

void trace_cut(struct trace *t, int64_t duration_ms)
{
    size_t keep = 0;
    uint64_t bytes = 0;
    while (keep < t->count && t->entries[keep].time_us - t->entries[0].time_us < duration_ms * 1000)
        bytes += t->entries[keep++].size_bytes;
    t->count = keep;
    t->total_bytes = bytes;
}

void trace_free(struct trace *t)
{
    free(t->entries);
    *t = (struct trace){0};
}
