/* SPDX-License-Identifier: Apache-2.0 */
#include "actconf.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/alloc.h"
#include "common/conftext.h"
#include "common/feedtype.h"
#include "common/words.h"
#include "guard.h"
#include "plural.h"

#define ENTRIES_MAX 16384u

struct parser {
    struct actconf *c;
    const char *name, *data_dir;
    unsigned line;
    FILE *errors;
};

static const struct action {
    const char *name;
    unsigned options;
    const char *usage;
} actions[] = {
    [ACT_NOOP] = {"NOOP", 0, "NOOP"},
    [ACT_FILE] = {"FILE",
                  ACT_OVERWRITE | ACT_FLUSH | ACT_CLOSE | ACT_STRIP | ACT_LOG | ACT_METADATA,
                  "FILE [-overwrite] [-flush] [-close] [-strip] [-log] [-metadata] path"},
    [ACT_STDIOFILE] = {"STDIOFILE",
                       ACT_OVERWRITE | ACT_FLUSH | ACT_CLOSE | ACT_STRIP | ACT_LOG | ACT_METADATA,
                       "STDIOFILE [-overwrite] [-flush] [-close] [-strip] [-log] [-metadata] path"},
    [ACT_PIPE] = {"PIPE", ACT_FLUSH | ACT_CLOSE | ACT_STRIP | ACT_LOG | ACT_METADATA,
                  "PIPE [-flush] [-close] [-strip] [-log] [-metadata] command [argument ...]"},
    [ACT_EXEC] = {"EXEC", ACT_WAIT | ACT_LOG, "EXEC [-wait] [-log] command [argument ...]"},
};
enum { ACTIONS = sizeof actions / sizeof actions[0] };

static const struct {
    const char *name;
    unsigned bit;
} options[] = {{"-overwrite", ACT_OVERWRITE},
               {"-flush", ACT_FLUSH},
               {"-close", ACT_CLOSE},
               {"-strip", ACT_STRIP},
               {"-log", ACT_LOG},
               {"-metadata", ACT_METADATA},
               {"-wait", ACT_WAIT}};
enum { OPTIONS = sizeof options / sizeof options[0] };

const char *act_kind_name(enum act_kind kind)
{
    return actions[kind].name;
}

static void complain(struct parser *p, const char *found, const char *valid, const char *why, ...)
    __attribute__((format(printf, 4, 5)));
static void complain(struct parser *p, const char *found, const char *valid, const char *why, ...)
{
    p->c->nerrors++;
    va_list ap;
    va_start(ap, why);
    conftext_complain(p->errors, p->name, p->line, found, valid, why, ap);
    va_end(ap);
}

static void free_entry(struct act_entry *e)
{
    ere_free(e->ere);
    for (size_t i = 0; i < e->nargs; i++)
        template_free(e->args[i]);
    free(e->args);
}

/* Returns a path relative to the data directory, or NULL after a message. */
static const char *below(struct parser *p, const char *path)
{
    size_t n = strlen(p->data_dir);

    while (n > 1 && p->data_dir[n - 1] == '/')
        n--;
    if (path[0] != '/')
        return path;
    if (n == 1)
        return path + strspn(path, "/");
    if (strncmp(path, p->data_dir, n) == 0 && path[n] == '/')
        return path + n + strspn(path + n, "/");
    complain(p, path, "a path below the data directory, relative or beginning with it",
             "outside the data directory \"%s\"", p->data_dir);
    return NULL;
}

/* A `..` in the text is an error at once; one that a substitution brings is refused later. */
static bool climbs(const char *path)
{
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
            return true;
    }
    return false;
}

static bool safe_command(struct parser *p, const struct act_entry *e, char **words)
{
    bool foreign[WORDS_MAX] = {false};
    size_t at;

    for (size_t i = 0; i < e->nargs; i++)
        foreign[i] = template_has_groups(e->args[i]);
    const char *why = guard_command(words, foreign, e->nargs, &at);
    if (why)
        complain(p, words[at],
                 at == 0 ? "a command without \\1 and the like"
                         : "a constant program that gets it as an argument, such as "
                           "sh -c 'echo \"$1\"' sh \\1",
                 "%s", why);
    return !why;
}

static bool take_arguments(struct parser *p, struct act_entry *e, char **words, size_t n)
{
    unsigned groups = e->ere ? ere_groups(e->ere) : 0;
    bool is_file = e->kind == ACT_FILE || e->kind == ACT_STDIOFILE;

    if ((is_file && n != 1) || (!is_file && n == 0)) {
        complain(p, actions[e->kind].name, actions[e->kind].usage, "%zu argument%s", n,
                 plural(n, "", "s"));
        return false;
    }
    e->args = xcalloc(n, sizeof(struct template *));
    char why[200];
    for (size_t i = 0; i < n; i++) {
        const char *text = words[i];

        if (is_file && !(text = below(p, text)))
            return false;
        if (is_file && (*text == '\0' || climbs(text))) {
            complain(p, words[i], "the path of a file below the data directory, without ..", "%s",
                     "");
            return false;
        }
        e->args[e->nargs] = template_compile(text, groups, why, sizeof why);
        if (!e->args[e->nargs]) {
            complain(
                p, words[i],
                "\\1 to \\9, \\(10) to \\(99) up to the number of groups, (\\1:yyyy), %Y, (seq)",
                "%s", why);
            return false;
        }
        e->nargs++;
    }
    return is_file || safe_command(p, e, words);
}

static bool take_action(struct parser *p, struct act_entry *e, char **words, size_t n)
{
    size_t at = 1, kind = 0;

    while (kind < ACTIONS && strcasecmp(words[0], actions[kind].name) != 0)
        kind++;
    if (kind == ACTIONS) {
        complain(p, words[0], "NOOP, FILE, STDIOFILE, PIPE or EXEC", "unknown action");
        return false;
    }
    e->kind = (enum act_kind)kind;
    for (; at < n && words[at][0] == '-'; at++) {
        size_t o = 0;

        while (o < OPTIONS && (strcmp(words[at], options[o].name) != 0 ||
                               !(options[o].bit & actions[e->kind].options)))
            o++;
        if (o == OPTIONS) {
            complain(p, words[at], actions[e->kind].usage, "unknown option of %s",
                     actions[e->kind].name);
            return false;
        }
        e->options |= options[o].bit;
    }
    if (e->kind == ACT_NOOP) {
        if (at < n)
            complain(p, words[at], actions[ACT_NOOP].usage, "argument of NOOP");
        return at == n;
    }
    return take_arguments(p, e, words + at, n - at);
}

/* Cuts off a field, up to a tab, and skips the tabs after it. */
static char *field(char **at)
{
    char *begin = *at;

    *at += strcspn(*at, "\t");
    if (**at != '\0')
        *(*at)++ = '\0';
    *at += strspn(*at, "\t");
    return begin;
}

static void trim(char *text)
{
    size_t n = strlen(text);

    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        text[--n] = '\0';
}

static void take_entry(struct parser *p, char *text)
{
    static const char usage[] = "feedtype TAB expression TAB action [options] [arguments]";
    struct act_entry e = {.line = p->line};
    char *rest = text, *feed = field(&rest), *pattern = field(&rest), **words = NULL;
    bool ok = false;

    trim(rest);
    if (*pattern == '\0' || *rest == '\0') {
        complain(p, feed, usage, "%s",
                 *pattern == '\0' ? "no expression (is there a tab?)"
                                  : "no action (is there a tab?)");
        return;
    }
    char why[600];
    size_t n;
    if (!feedtype_parse(feed, &e.feed, why, sizeof why)) {
        char *valid = strstr(why, "; valid: ");

        if (valid)
            *valid = '\0';
        complain(p, feed, "a feedtype such as NGRID, ANY or ANY-EXP", "%s", why);
    } else if (strcmp(pattern, "^_ELSE_$") != 0 &&
               ere_compile_groups(&e.ere, pattern, why, sizeof why) < 0) {
        complain(p, pattern, "an extended regular expression, or ^_ELSE_$", "%s", why);
    } else if (e.ere && ere_groups(e.ere) > TEMPLATE_GROUPS_MAX) {
        complain(p, pattern, "an expression with at most 99 groups", "%s", "");
    } else if (!(words = words_split(rest, &n, why, sizeof why))) {
        complain(p, rest, usage, "%s", why);
    } else if (p->c->n >= ENTRIES_MAX) {
        complain(p, feed, "at most 16384 entries", "%s", "");
    } else {
        ok = take_action(p, &e, words, n);
    }
    words_free(words);
    if (!ok) {
        free_entry(&e);
        return;
    }
    p->c->entries = xgrow(p->c->entries, &p->c->n, sizeof e);
    p->c->entries[p->c->n - 1] = e;
    if (e.ere && ere_groups(e.ere) + 1 > p->c->spans)
        p->c->spans = ere_groups(e.ere) + 1;
}

static bool is_comment(const char *line)
{
    return line[strspn(line, " \t")] == '#' || line[strspn(line, " \t\r")] == '\0';
}

static void take_text(struct parser *p, char *text)
{
    char none[1] = "", *entry = none, *end = none; /* the entry under construction; its NUL */
    unsigned line = 0;

    while (text) {
        char *next = strchr(text, '\n');
        bool continues = *text == ' ' || *text == '\t';

        if (next)
            *next++ = '\0';
        line++;
        text[strcspn(text, "\r")] = '\0';
        if (is_comment(text)) {
            /* Also within an entry. */
        } else if (continues && entry == none) {
            p->line = line;
            complain(p, text + strspn(text, " \t"), "a feedtype in the first column",
                     "continues an entry, but there is none");
        } else if (continues) {
            text += strspn(text, " \t");
            *end++ = '\t';
            memmove(end, text, strlen(text) + 1);
            end += strlen(end);
        } else {
            if (entry != none)
                take_entry(p, entry);
            entry = text;
            end = text + strlen(text);
            p->line = line;
        }
        text = next;
    }
    if (entry != none)
        take_entry(p, entry);
}

int actconf_parse(struct actconf *c, const char *name, const char *text, const char *data_dir,
                  FILE *errors)
{
    struct parser p = {.c = c, .name = name, .data_dir = data_dir, .errors = errors};
    char *copy = xstrdup(text);

    *c = (struct actconf){.spans = 1};
    take_text(&p, copy);
    free(copy);
    return c->nerrors == 0 ? 0 : -1;
}

int actconf_load(struct actconf *c, const char *path, const char *data_dir, FILE *errors)
{
    const char *why = NULL;
    char *text = conftext_read(path, &why);

    *c = (struct actconf){.spans = 1};
    if (!text) {
        c->nerrors = 1;
        if (errors)
            fprintf(errors, "%s: cannot be read: %s; valid: a readable pqact.conf\n", path, why);
        return -1;
    }
    int rc = actconf_parse(c, path, text, data_dir, errors);
    free(text);
    return rc;
}

void actconf_free(struct actconf *c)
{
    for (size_t i = 0; i < c->n; i++)
        free_entry(&c->entries[i]);
    free(c->entries);
    *c = (struct actconf){0};
}
