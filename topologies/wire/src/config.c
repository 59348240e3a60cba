/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *name;
    unsigned line;
    char *error;
    size_t error_size;
};

static int fail(const struct parser *p, const char *found, const char *valid)
{
    snprintf(p->error, p->error_size, "%s:%u: found '%.80s'; valid: %s", p->name, p->line, found,
             valid);
    return -1;
}

static bool parse_unsigned(const char *text, uint64_t max, uint64_t *value)
{
    char *end = NULL;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || v > max)
        return false;
    *value = v;
    return true;
}

static bool parse_probability(const char *text, double *value)
{
    char *end = NULL;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false;
    double v = strtod(text, &end);
    if (*end != '\0' || !isfinite(v) || v < 0.0 || v > 1.0)
        return false;
    *value = v;
    return true;
}

static bool copy_word(char *to, size_t size, const char *from)
{
    size_t length = from ? strlen(from) : 0;
    if (length == 0 || length >= size)
        return false;
    /* Names are echoed into JSON; these characters need no quoting. */
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)from[i]) && !strchr("-_.:/@+", from[i]))
            return false;
    memcpy(to, from, length + 1);
    return true;
}

static int parse_option(const struct parser *p, struct config_line *line, char *word)
{
    char *value = strchr(word, '=');
    uint64_t n = 0;
    if (!value)
        return fail(p, word, "key=value with key delay_us, jitter_us, loss, seed or slots");
    *value++ = '\0';
    if (strcmp(word, "delay_us") == 0) {
        if (!parse_unsigned(value, CONFIG_MAX_DELAY_US, &n))
            return fail(p, value, "delay_us=0 ... 10000000");
        line->delay_us = (int64_t)n;
    } else if (strcmp(word, "jitter_us") == 0) {
        if (!parse_unsigned(value, CONFIG_MAX_DELAY_US, &n))
            return fail(p, value, "jitter_us=0 ... 10000000");
        line->jitter_us = (int64_t)n;
    } else if (strcmp(word, "loss") == 0) {
        if (!parse_probability(value, &line->loss))
            return fail(p, value, "loss=0 ... 1");
    } else if (strcmp(word, "seed") == 0) {
        if (!parse_unsigned(value, UINT64_MAX, &line->seed))
            return fail(p, value, "seed=0 ... 18446744073709551615");
    } else if (strcmp(word, "slots") == 0) {
        if (!parse_unsigned(value, CONFIG_MAX_SLOTS, &n) || n < 8)
            return fail(p, value, "slots=8 ... 1048576");
        line->slots = (unsigned)n;
    } else {
        return fail(p, word, "delay_us, jitter_us, loss, seed or slots");
    }
    return 0;
}

static int parse_line(const struct parser *p, struct config *config, char **save)
{
    if (config->n_lines == CONFIG_MAX_LINES)
        return fail(p, "line", "at most 512 lines");
    struct config_line *line = &config->lines[config->n_lines];
    memset(line, 0, sizeof *line);
    line->slots = 1024;
    struct {
        char *to;
        size_t size;
        const char *valid;
    } words[] = {
        {line->link, sizeof line->link, "line LINK DIRECTION IN OUT [key=value ...]"},
        {line->direction, sizeof line->direction, "line LINK DIRECTION IN OUT [key=value ...]"},
        {line->in, sizeof line->in, "an interface name of at most 15 characters"},
        {line->out, sizeof line->out, "an interface name of at most 15 characters"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *word = strtok_r(NULL, " \t", save);
        if (!copy_word(words[i].to, words[i].size, word))
            return fail(p, word ? word : "end of line", words[i].valid);
    }
    if (strcmp(line->in, line->out) == 0)
        return fail(p, line->out, "an outgoing interface that is not the incoming one");
    for (size_t i = 0; i < config->n_lines; i++)
        if (strcmp(config->lines[i].in, line->in) == 0)
            return fail(p, line->in, "an incoming interface that no other line reads");
    char *word = NULL;
    while ((word = strtok_r(NULL, " \t", save)))
        if (parse_option(p, line, word) != 0)
            return -1;
    if (line->jitter_us > line->delay_us)
        return fail(p, "jitter_us", "jitter_us at most delay_us");
    config->n_lines++;
    return 0;
}

static int parse_statement(const struct parser *p, struct config *config, char *text)
{
    char *save = NULL;
    uint64_t n = 0;
    const char *key = strtok_r(text, " \t", &save);
    if (!key)
        return 0;
    if (strcmp(key, "line") == 0)
        return parse_line(p, config, &save);
    const char *value = strtok_r(NULL, " \t", &save);
    if (strcmp(key, "ready") == 0 || strcmp(key, "stats") == 0) {
        char *to = key[0] == 'r' ? config->ready : config->stats;
        if (!copy_word(to, CONFIG_PATH, value))
            return fail(p, value ? value : key, "a path of letters, digits and -_.:/@+");
    } else if (strcmp(key, "gap_us") == 0) {
        if (!value || !parse_unsigned(value, 100000, &n))
            return fail(p, value ? value : key, "gap_us 0 ... 100000");
        config->gap_us = (int64_t)n;
    } else if (strcmp(key, "priority") == 0) {
        if (!value || !parse_unsigned(value, 99, &n))
            return fail(p, value ? value : key, "priority 0 ... 99");
        config->priority = (int)n;
    } else {
        return fail(p, key, "ready, stats, gap_us, priority or line");
    }
    const char *more = strtok_r(NULL, " \t", &save);
    return !more ? 0 : fail(p, more, "one value");
}

int config_parse(struct config *config, const char *name, const char *text, char *error,
                 size_t error_size)
{
    struct parser p = {.name = name, .error = error, .error_size = error_size};
    memset(config, 0, sizeof *config);
    config->gap_us = 250;
    config->priority = 50;
    config->lines = calloc(CONFIG_MAX_LINES, sizeof *config->lines);
    char *copy = strdup(text);
    int rc = -1;
    if (!config->lines || !copy) {
        snprintf(error, error_size, "%s: out of memory", name);
        goto cleanup;
    }
    for (char *at = copy; at;) {
        char *next = strchr(at, '\n');
        if (next)
            *next++ = '\0';
        p.line++;
        char *comment = strchr(at, '#');
        if (comment)
            *comment = '\0';
        if (parse_statement(&p, config, at) != 0)
            goto cleanup;
        at = next;
    }
    if (config->n_lines == 0) {
        rc = fail(&p, "no line", "at least one 'line' statement");
        goto cleanup;
    }
    rc = 0;
cleanup:
    free(copy);
    if (rc != 0)
        config_free(config);
    return rc;
}

void config_free(struct config *config)
{
    free(config->lines);
    config->lines = NULL;
    config->n_lines = 0;
}
