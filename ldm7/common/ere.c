/* SPDX-License-Identifier: Apache-2.0 */
#include "ere.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "log.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct ere {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    unsigned long limit_hits;
    unsigned groups;
    char pattern[ERE_BYTES_MAX + 1];
};

/* Returns the ']' that matches the '[' at p, or the end of the text. */
static const char *bracket_end(const char *p)
{
    p++;
    p += *p == '^';
    p += *p == ']';
    for (; *p != '\0' && *p != ']'; p++) {
        if (*p == '[' && p[1] != '\0' && strchr(":.=", p[1])) {
            const char close[] = {p[1], ']', '\0'}, *end = strstr(p + 2, close);

            if (end)
                p = end + 1;
        }
    }
    return p;
}

/* Returns the '}' that matches the '{' at p, and the greatest count, saturated above
 * ERE_REPEAT_MAX; NULL if this is not {m}, {m,} or {m,n}. */
static const char *interval_end(const char *p, unsigned *count)
{
    unsigned commas = 0, value = 0;

    *count = 1;
    if (!isdigit((unsigned char)p[1]))
        return NULL;
    for (p++; isdigit((unsigned char)*p) || (*p == ',' && commas++ == 0); p++) {
        value = *p == ',' ? 0 : value * 10 + (unsigned)(*p - '0');
        value = value > ERE_REPEAT_MAX ? ERE_REPEAT_MAX + 1 : value;
        *count = value > *count ? value : *count;
    }
    return *p == '}' ? p : NULL;
}

/* Returns why p, of at most ERE_BYTES_MAX bytes, is refused: PCRE2 would give it a meaning that an
 * ERE does not have, or nested counts multiply to more than ERE_REPEAT_MAX. NULL: it is not
 * refused. */
static const char *not_ere(const char *p)
{
    unsigned most[ERE_BYTES_MAX + 1] = {1}; /* per open group, the greatest product in it */
    unsigned depth = 0, atom = 1, count;    /* atom: the product in the last atom */
    bool repeated = false;

    for (; *p != '\0'; p++) {
        bool repeats = strchr("*+?{", *p);

        if (repeats && repeated)
            return "one repetition directly after another";
        repeated = repeats;
        if (*p == '{') {
            p = interval_end(p, &count);
            if (!p)
                return "\"{\" that does not begin {m}, {m,} or {m,n}";
            atom *= count;
            if (atom > ERE_REPEAT_MAX)
                return "repetition above 1024";
            most[depth] = atom > most[depth] ? atom : most[depth];
            continue;
        }
        if (repeats)
            continue;
        atom = 1;
        if (*p == '\\') {
            p++;
            if (isdigit((unsigned char)*p))
                return "back reference";
            if (*p == '\0' || !ispunct((unsigned char)*p) || strchr("<>`'", *p))
                return "backslash before a character that is not special";
        } else if (*p == '[') {
            p = bracket_end(p);
            if (*p == '\0')
                return "\"[\" without \"]\"";
        } else if (*p == '(') {
            if (p[1] != '\0' && strchr("?*+{", p[1]))
                return "repetition of nothing";
            most[++depth] = 1;
        } else if (*p == ')' && depth > 0) {
            atom = most[depth--];
            most[depth] = atom > most[depth] ? atom : most[depth];
        }
    }
    return NULL;
}
_Static_assert(ERE_REPEAT_MAX == 1024, "the text above");

static pcre2_code *compile(const char *pattern, uint32_t options, int *error)
{
    PCRE2_UCHAR *converted = NULL;
    PCRE2_SIZE bytes = 0;
    pcre2_code *code = NULL;

    *error = pcre2_pattern_convert((PCRE2_SPTR)pattern, strlen(pattern),
                                   PCRE2_CONVERT_POSIX_EXTENDED, &converted, &bytes, NULL);
    PCRE2_SIZE at;
    if (*error == 0)
        code = pcre2_compile(converted, bytes, options, error, &at, NULL);
    pcre2_converted_pattern_free(converted);
    return code;
}

static int compile_ere(struct ere **out, const char *pattern, uint32_t more, char *err,
                       size_t err_bytes)
{
    uint32_t options = PCRE2_DOTALL | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_UTF | PCRE2_NEVER_UCP |
                       PCRE2_NEVER_BACKSLASH_C | more;
    const char *why = strlen(pattern) > ERE_BYTES_MAX ? "longer than 255 bytes" : not_ere(pattern);

    *out = NULL;
    if (why) {
        snprintf(err, err_bytes, "%s in \"%.*s\"", why, (int)ERE_BYTES_MAX, pattern);
        return -1;
    }
    struct ere *re = xcalloc(1, sizeof *re);
    memcpy(re->pattern, pattern, strlen(pattern) + 1);
    /* Searching for ".*x" is equivalent to searching for "x" but slow (and it finds the last x,
     * which matters for groups). */
    while ((more & PCRE2_NO_AUTO_CAPTURE) && strncmp(pattern, ".*", 2) == 0 && pattern[2] != '\0' &&
           pattern[2] != '|')
        pattern += 2;
    int error;
    re->code = compile(pattern, options, &error);
    if (!re->code) {
        PCRE2_UCHAR text[128] = "";

        pcre2_get_error_message(error, text, sizeof text);
        snprintf(err, err_bytes, "\"%s\": %s", re->pattern, (char *)text);
        ere_free(re);
        return -1;
    }
    uint32_t groups = 0;
    pcre2_pattern_info(re->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    re->groups = groups;
    re->data = pcre2_match_data_create(groups + 1, NULL);
    re->limits = pcre2_match_context_create(NULL);
    if (!re->data || !re->limits)
        alloc_fails(sizeof *re);
    pcre2_set_match_limit(re->limits, ERE_MATCH_LIMIT);
    pcre2_set_depth_limit(re->limits, ERE_DEPTH_LIMIT);
    pcre2_set_heap_limit(re->limits, ERE_HEAP_KIB);
    *out = re;
    return 0;
}

int ere_compile(struct ere **out, const char *pattern, bool ignore_case, char *err,
                size_t err_bytes)
{
    return compile_ere(out, pattern, PCRE2_NO_AUTO_CAPTURE | (ignore_case ? PCRE2_CASELESS : 0),
                       err, err_bytes);
}

int ere_compile_groups(struct ere **out, const char *pattern, char *err, size_t err_bytes)
{
    return compile_ere(out, pattern, 0, err, err_bytes);
}

void ere_free(struct ere *re)
{
    if (!re)
        return;
    pcre2_match_context_free(re->limits);
    pcre2_match_data_free(re->data);
    pcre2_code_free(re->code);
    free(re);
}

enum ere_result ere_match(struct ere *re, const char *text)
{
    int rc = pcre2_match(re->code, (PCRE2_SPTR)text, strlen(text), 0, PCRE2_NO_JIT, re->data,
                         re->limits);

    if (rc >= 0)
        return ERE_YES;
    if (rc == PCRE2_ERROR_NOMATCH)
        return ERE_NO;
    if (re->limit_hits++ == 0)
        log_warn(
            "Expression \"%s\" exceeds the limits of matching (%d) on \"%s\": treated as no match",
            re->pattern, rc, text);
    return ERE_LIMIT;
}

unsigned long ere_limit_hits(const struct ere *re)
{
    return re->limit_hits;
}

unsigned ere_groups(const struct ere *re)
{
    return re->groups;
}

enum ere_result ere_match_groups(struct ere *re, const char *text, struct ere_span *spans,
                                 unsigned n)
{
    enum ere_result r = ere_match(re, text);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(re->data);
    uint32_t pairs = pcre2_get_ovector_count(re->data);

    for (unsigned i = 0; r == ERE_YES && i < n && i < pairs; i++, at += 2) {
        bool set = at[0] != PCRE2_UNSET;

        spans[i] = (struct ere_span){set ? text + at[0] : NULL, set ? at[1] - at[0] : 0};
    }
    return r;
}
