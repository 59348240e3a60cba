/* SPDX-License-Identifier: Apache-2.0 */
#include "template.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/alloc.h"
#include "plural.h"

#define DATE_AHEAD_S (36L * 3600)

enum piece_kind { PIECE_TEXT, PIECE_GROUP, PIECE_DATE, PIECE_TIME, PIECE_SEQ };
struct piece {
    enum piece_kind kind;
    unsigned group;
    unsigned part;  /* PIECE_DATE: index into date_parts */
    const char *at; /* into text; PIECE_TIME: the conversion */
    size_t bytes;
};
struct template
{
    struct piece *pieces;
    size_t n;
    const char *plain; /* during parsing: text that is not in a piece yet */
    char text[];
};

static const char *const date_parts[] = {"yyyy", "yy", "mmm", "mm", "ddd", "dd", "hh"};
enum { DATE_PARTS = sizeof date_parts / sizeof date_parts[0] };
static const char *const part_formats[] = {"%Y", "%y", "", "%m", "%j", "%d", "%H"};
enum { PART_MONTH_NAME = 2 };

static struct piece *push(struct template *t, struct piece piece)
{
    t->pieces = xgrow(t->pieces, &t->n, sizeof *t->pieces);
    t->pieces[t->n - 1] = piece;
    return &t->pieces[t->n - 1];
}

/* Adds a substitution for these bytes of the text, and the plain text before it. */
static struct piece *add(struct template *t, enum piece_kind kind, const char *at, size_t bytes)
{
    if (at > t->plain)
        push(t,
             (struct piece){.kind = PIECE_TEXT, .at = t->plain, .bytes = (size_t)(at - t->plain)});
    t->plain = at + bytes;
    return push(t, (struct piece){.kind = kind, .at = at, .bytes = bytes});
}

/* Parses N or (NN) after a backslash at p. Returns its length, 0 if invalid. */
static size_t group_at(const char *p, unsigned *group)
{
    size_t open = *p == '(', digits = strspn(p + open, "0123456789");

    *group = 0;
    if (digits == 0 || (open && (digits > 2 || p[1 + digits] != ')')))
        return 0;
    if (!open)
        digits = 1;
    for (size_t i = 0; i < digits; i++)
        *group = *group * 10 + (unsigned)(p[open + i] - '0');
    return digits + 2 * open;
}

/* Parses (\N:part) at p. Returns its length, 0 if invalid. */
static size_t date_at(const char *p, unsigned *group, unsigned *part)
{
    size_t n;

    if (p[0] != '(' || p[1] != '\\' || (n = group_at(p + 2, group)) == 0 || p[2 + n] != ':')
        return 0;
    n += 3;
    for (unsigned i = 0; i < DATE_PARTS; i++) {
        size_t len = strlen(date_parts[i]);

        if (strncmp(p + n, date_parts[i], len) == 0 && p[n + len] == ')') {
            *part = i;
            return n + len + 1;
        }
    }
    *part = DATE_PARTS;
    return n;
}

/* Parses a conversion at p, which is %. Returns its length, 0 if invalid. */
static size_t conversion_at(const char *p)
{
    size_t n = 1;

    if (p[n] != '\0' && strchr("-_0^#", p[n]))
        n++;
    return p[n] != '\0' && strchr("aAbBcCdDeFgGhHIjklmMpPrRsSTuUVwWxXyYzZ%", p[n]) ? n + 1 : 0;
}

static bool known_group(unsigned group, unsigned groups, char *err, size_t err_bytes)
{
    if (group <= groups)
        return true;
    snprintf(err, err_bytes, "\\%u, but the expression has %u group%s", group, groups,
             plural(groups, "", "s"));
    return false;
}

/* Takes the substitution at p; returns its length, 0 if there is none (or with a reason in err). */
static size_t take(struct template *t, const char *p, unsigned groups, char *err, size_t err_bytes)
{
    size_t n;

    unsigned group;
    if (*p == '\\' && (n = group_at(p + 1, &group)) > 0) {
        if (!known_group(group, groups, err, err_bytes))
            return 0;
        add(t, PIECE_GROUP, p, ++n)->group = group;
        return n;
    }
    unsigned part;
    if ((n = date_at(p, &group, &part)) > 0) {
        if (part == DATE_PARTS)
            snprintf(err, err_bytes,
                     "\"%.12s\" is not part of a date (yyyy, yy, mmm, mm, ddd, dd, hh)", p + n);
        if (part == DATE_PARTS || !known_group(group, groups, err, err_bytes))
            return 0;
        struct piece *piece = add(t, PIECE_DATE, p, n);
        piece->group = group;
        piece->part = part;
        return n;
    }
    if (strncmp(p, "(seq)", 5) == 0) {
        add(t, PIECE_SEQ, p, 5);
        return 5;
    }
    if (*p != '%')
        return 0;
    if ((n = conversion_at(p)) == 0)
        snprintf(err, err_bytes,
                 "\"%.2s\" is not a conversion of strftime (%%%% is a percent sign)", p);
    else
        add(t, PIECE_TIME, p, n);
    return n;
}

struct template *template_compile(const char *text, unsigned groups, char *err, size_t err_bytes)
{
    struct template *t = xcalloc(1, sizeof *t + strlen(text) + 1);

    memcpy(t->text, text, strlen(text) + 1);
    t->plain = t->text;
    *err = '\0';
    for (const char *p = t->text; *p != '\0' && *err == '\0';) {
        size_t n = take(t, p, groups, err, err_bytes);

        p += n > 0 ? n : 1;
    }
    if (*err != '\0') {
        template_free(t);
        return NULL;
    }
    if (*t->plain != '\0')
        push(t, (struct piece){.kind = PIECE_TEXT, .at = t->plain, .bytes = strlen(t->plain)});
    return t;
}

bool template_has_groups(const struct template *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->pieces[i].kind == PIECE_GROUP || t->pieces[i].kind == PIECE_DATE)
            return true;
    return false;
}

bool template_begins_with_group(const struct template *t)
{
    return t->n > 0 && t->pieces[0].kind == PIECE_GROUP;
}

void template_free(struct template *t)
{
    if (!t)
        return;
    free(t->pieces);
    free(t);
}

/* ------------------------------------------------------------------ expansion */

/* Finds the date that day represents; 0 is the creation time itself. */
static bool full_date(time_t creation, unsigned day, struct tm *out)
{
    struct tm base;

    if (!gmtime_r(&creation, &base) || day > 31)
        return false;
    *out = base;
    for (int month = 1; day > 0 && month >= -3; month--) {
        struct tm tm = base;

        tm.tm_mon += month;
        tm.tm_mday = (int)day;
        time_t t = timegm(&tm);
        /* In a shorter month the day would belong to the next month. */
        if (tm.tm_mday == (int)day && t < creation + DATE_AHEAD_S) {
            *out = tm;
            return true;
        }
    }
    return day == 0;
}

/* Parses one or two digits, or gives the reason. */
static bool day_of(const struct ere_span *s, unsigned *day, char *err, size_t err_bytes)
{
    *day = 0;
    for (size_t i = 0; s->at && i < s->bytes; i++) {
        if (!isdigit((unsigned char)s->at[i]) || i > 1)
            goto bad;
        *day = *day * 10 + (unsigned)(s->at[i] - '0');
    }
    if (s->at && s->bytes > 0 && *day <= 31)
        return true;
bad:
    snprintf(err, err_bytes, "\"%.*s\" is not a day of a month",
             (int)(s->bytes < 40 ? s->bytes : 40), s->at ? s->at : "");
    return false;
}

/* Long enough for every conversion; returns -1 if no calendar has this time. */
static long put_time(const char *format, size_t format_bytes, const struct tm *tm, time_t creation,
                     char out[256])
{
    char one[8];

    snprintf(one, sizeof one, "%.*s", (int)format_bytes, format);
    if (one[format_bytes - 1] == 's') /* strftime() would use local time */
        return snprintf(out, 256, "%lld", (long long)creation);
    *out = '\0';
    return (long)strftime(out, 256, one, tm);
}

static long put_date(const struct piece *p, const struct pq_info *info, const struct ere_span *span,
                     char out[256], char *err, size_t err_bytes)
{
    static const char *const months[] = {"jan", "feb", "mar", "apr", "may", "jun",
                                         "jul", "aug", "sep", "oct", "nov", "dec"};

    unsigned day;
    if (!day_of(span, &day, err, err_bytes))
        return -1;
    struct tm tm;
    if (!full_date(info->creation.tv_sec, day, &tm)) {
        snprintf(err, err_bytes, "the creation time is out of any calendar");
        return -1;
    }
    if (p->part == PART_MONTH_NAME)
        return snprintf(out, 256, "%s", months[tm.tm_mon]);
    return put_time(part_formats[p->part], 2, &tm, info->creation.tv_sec, out);
}

long template_expand(const struct template *t, const struct pq_info *info,
                     const struct ere_span *spans, unsigned nspans, char *out, size_t out_bytes,
                     char *err, size_t err_bytes)
{
    static const struct ere_span none = {"", 0};
    size_t used = 0;
    char made[256];

    for (size_t i = 0; i < t->n; i++) {
        const struct piece *p = &t->pieces[i];
        const struct ere_span *span =
            p->group < nspans && spans[p->group].at ? &spans[p->group] : &none;
        const char *from = made;
        time_t creation = info->creation.tv_sec;
        long n = -1;

        struct tm tm;
        switch (p->kind) {
        case PIECE_TEXT:
            from = p->at;
            n = (long)p->bytes;
            break;
        case PIECE_GROUP:
            from = span->at;
            n = (long)span->bytes;
            break;
        case PIECE_SEQ: n = snprintf(made, sizeof made, "%u", info->seqno); break;
        case PIECE_DATE: n = put_date(p, info, span, made, err, err_bytes); break;
        case PIECE_TIME:
            if (gmtime_r(&creation, &tm))
                n = put_time(p->at, p->bytes, &tm, creation, made);
            else
                snprintf(err, err_bytes, "the creation time is out of any calendar");
            break;
        }
        if (n < 0)
            return -1;
        if ((size_t)n >= out_bytes - used) {
            snprintf(err, err_bytes, "longer than %zu bytes", out_bytes - 1);
            return -1;
        }
        memcpy(out + used, from, (size_t)n);
        used += (size_t)n;
    }
    out[used] = '\0';
    return (long)used;
}
