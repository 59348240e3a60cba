/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/conftext.h"
#include "common/words.h"
#include "site/pqact/actconf.h"

static char *messages;
static size_t messages_len;

static int parse(struct actconf *c, const char *text)
{
    free(messages);
    messages = NULL;
    FILE *f = open_memstream(&messages, &messages_len);
    int rc = actconf_parse(c, "pqact.conf", text, "/data/ldm", f);
    fclose(f);
    return rc;
}

static const char *argument(const struct act_entry *e, size_t i)
{
    static char out[200];
    struct pq_info info = {.seqno = 5};
    struct ere_span spans[4] = {{"whole", 5}, {"one", 3}, {"two", 3}, {"three", 5}};

    assert_true(i < e->nargs);
    char err[200];
    assert_true(template_expand(e->args[i], &info, spans, 4, out, sizeof out, err, sizeof err) >=
                0);
    return out;
}

static void entries(void **state)
{
    (void)state;
    struct actconf c;
    assert_int_equal(parse(&c,
                           "# comment\n\n"
                           "ANY - EXP\t^a b\tFILE\tdata/\\0\n"
                           "NGRID\t^(.*)/(.*)\n"
                           "# a comment in it\n"
                           "\tSTDIOFILE\t-overwrite -flush\n"
                           "  -strip -log\t-metadata\t/data/ldm//x/\\1 \r\n"
                           "\n"
                           "WMO|EXP\t\t(x)\tPIPE\t-close -strip -metadata decoder \"a b\" '' \\1\n"
                           "ANY\t^_ELSE_$\tEXEC\t-wait touch \"it's \\\"so\\\"\"\n"
                           "any\tx\tnoop"),
                     0);
    assert_int_equal(messages_len, 0);
    assert_int_equal(c.n, 5);
    assert_int_equal(c.spans, 3);
    assert_int_equal(c.entries[0].line, 3);
    assert_int_equal(c.entries[0].feed, 0xbfffffff);
    assert_int_equal(c.entries[0].kind, ACT_FILE);
    assert_int_equal(c.entries[0].options, 0);
    assert_string_equal(argument(&c.entries[0], 0), "data/whole");
    assert_int_equal(c.entries[1].line, 4);
    assert_int_equal(c.entries[1].kind, ACT_STDIOFILE);
    assert_int_equal(c.entries[1].options,
                     ACT_OVERWRITE | ACT_FLUSH | ACT_STRIP | ACT_LOG | ACT_METADATA);
    assert_string_equal(argument(&c.entries[1], 0), "x/one");
    assert_int_equal(c.entries[2].line, 9);
    assert_int_equal(c.entries[2].nargs, 4);
    assert_int_equal(c.entries[2].options, ACT_CLOSE | ACT_STRIP | ACT_METADATA);
    assert_string_equal(argument(&c.entries[2], 1), "a b");
    assert_string_equal(argument(&c.entries[2], 2), "");
    assert_string_equal(argument(&c.entries[2], 3), "one");
    assert_null(c.entries[3].ere);
    assert_int_equal(c.entries[3].options, ACT_WAIT);
    assert_string_equal(argument(&c.entries[3], 1), "it's \"so\"");
    assert_int_equal(c.entries[4].kind, ACT_NOOP);
    actconf_free(&c);
}

/* Each entry is wrong in one way; all are reported in one go, with their lines. */
static void all_errors_at_once(void **state)
{
    static const struct {
        const char *line, *found;
    } bad[] = {
        {"NGRYD\tx\tNOOP", "NGRYD\": "},
        {"ANY\t(\tNOOP", "(\": "},
        {"ANY\tx\tDBFILE\ta", "DBFILE\": unknown action; valid: NOOP, FILE"},
        {"ANY x NOOP", "ANY x NOOP\": no expression"},
        {"ANY\tx", "ANY\": no action"},
        {"ANY\tx\tFILE", "FILE\": 0 arguments"},
        {"ANY\tx\tFILE\ta b", "FILE\": 2 arguments"},
        {"ANY\tx\tFILE\t-wait a", "-wait\": unknown option of FILE"},
        {"ANY\tx\tEXEC\t-close a", "-close\": unknown option of EXEC"},
        {"ANY\tx\tPIPE\t-strip", "PIPE\": 0 arguments"},
        {"ANY\tx\tNOOP\tx", "x\": argument of NOOP"},
        {"ANY\tx\tFILE\t/etc/passwd", "/etc/passwd\": outside the data directory \"/data/ldm\""},
        {"ANY\tx\tFILE\t/data/ldmx/a", "/data/ldmx/a\": outside"},
        {"ANY\tx\tFILE\ta/../b", "a/../b\"; valid: the path of a file below"},
        {"ANY\tx\tFILE\t/data/ldm/..", "/data/ldm/..\"; valid"},
        {"ANY\tx\tFILE\ta\\1", "a\\1\": \\1, but the expression has 0 groups"},
        {"ANY\t^_ELSE_$\tFILE\ta\\1", "a\\1\": \\1, but"},
        {"ANY\tx\tFILE\t\"a", "FILE\t\"a\": a quote is not closed"},
        {"ANY\t(x)\tEXEC\t\\1 a", "\\1\": the identifier would choose the program"},
        {"ANY\t(x)\tPIPE\tsh -c \"cat > \\1\"",
         "cat > \\1\": text of the identifier would be read by a shell"},
        {"ANY\t(x)\tEXEC\t/bin/bash -xec 'rm (\\1:dd)'", "rm (\\1:dd)\": text of"},
        {"ANY\t(x)\tEXEC\t/bin/sh \\1", "\\1\": text of"},
    };
    char text[8192] = "\tEXEC a\n";
    size_t n = sizeof bad / sizeof bad[0];

    (void)state;
    for (size_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", bad[i].line);
    struct actconf c;
    assert_int_equal(parse(&c, text), -1);
    assert_int_equal(c.nerrors, n + 1);
    assert_non_null(
        strstr(messages,
               "pqact.conf:1: found \"EXEC a\": continues an entry, but there is none; valid: "));
    char want[300];
    for (size_t i = 0; i < n; i++) {
        size_t used = (size_t)snprintf(want, sizeof want, "pqact.conf:%zu: found \"", i + 2);

        for (const char *s = bad[i].found; *s != '\0'; s++)
            want[used++] = *s == '\t' ? '?' : *s;
        want[used] = '\0';
        if (!strstr(messages, want))
            fail_msg("no message begins with: %s\nmessages:\n%s", want, messages);
    }
    actconf_free(&c);
}

/* The form that the message recommends. */
static void shell_with_arguments(void **state)
{
    (void)state;
    struct actconf c;
    assert_int_equal(parse(&c, "ANY\t(x)\tEXEC\tsh -c 'echo \"$1\"' sh \\1\n"), 0);
    assert_string_equal(argument(&c.entries[0], 2), "echo \"$1\"");
    assert_string_equal(argument(&c.entries[0], 4), "one");
    actconf_free(&c);
    assert_int_equal(actconf_load(&c, "/nonexistent/pqact.conf", "/", NULL), -1);
    actconf_free(&c);
}

static void write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Files that cannot be a configuration. */
static void unreadable(void **state)
{
    char path[] = "/tmp/test-actconf-XXXXXX", *big = malloc(CONFTEXT_BYTES_MAX + 1);
    const char *why = NULL;

    (void)state;
    close(mkstemp(path));
    char *text = conftext_read(path, &why);
    assert_string_equal(text, "");
    free(text);
    write_bytes(path, "a\0b", 3);
    assert_null(conftext_read(path, &why));
    assert_string_equal(why, "contains a NUL byte");
    memset(big, '#', CONFTEXT_BYTES_MAX + 1);
    write_bytes(path, big, CONFTEXT_BYTES_MAX + 1);
    assert_null(conftext_read(path, &why));
    assert_string_equal(why, "longer than 1 MiB");
    write_bytes(path, big, CONFTEXT_BYTES_MAX);
    text = conftext_read(path, &why);
    assert_int_equal(strlen(text), CONFTEXT_BYTES_MAX);
    free(text);
    assert_null(conftext_read("/tmp", &why));
    assert_string_equal(why, "Is a directory");
    unlink(path);
    free(big);
}

static void words(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        const char *want[4];
    } t[] = {
        {"a", 1, {"a"}},
        {" a\tb  ", 2, {"a", "b"}},
        {"a\"b c\"d 'e\"f'", 2, {"ab cd", "e\"f"}},
        {"\"\" ''", 2, {"", ""}},
        {"\\1 \"\\\\ \\\" \\n\" '\\'", 3, {"\\1", "\\ \" \\n", "\\"}},
        {"$HOME `id` > * ;", 5, {"$HOME", "`id`", ">", "*"}},
    };

    (void)state;
    char err[100];
    size_t n;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        char **w = words_split(t[i].text, &n, err, sizeof err);

        assert_non_null(w);
        assert_int_equal(n, t[i].n);
        for (size_t k = 0; k < n && k < 4; k++)
            assert_string_equal(w[k], t[i].want[k]);
        assert_null(w[n]);
        words_free(w);
    }
    assert_null(words_split("  ", &n, err, sizeof err));
    assert_string_equal(err, "no word");
    assert_null(words_split("a 'b", &n, err, sizeof err));
    char many[2 * WORDS_MAX + 3] = "";
    for (unsigned i = 0; i <= WORDS_MAX; i++)
        strcat(many, "x ");
    assert_null(words_split(many, &n, err, sizeof err));
    assert_string_equal(err, "more than 64 words");
    many[2 * WORDS_MAX] = '\0';
    char **w = words_split(many, &n, err, sizeof err);
    assert_int_equal(n, WORDS_MAX);
    words_free(w);
}

static int cleanup(void **state)
{
    (void)state;
    free(messages);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries),
                                       cmocka_unit_test(all_errors_at_once),
                                       cmocka_unit_test(shell_with_arguments),
                                       cmocka_unit_test(unreadable), cmocka_unit_test(words)};

    return cmocka_run_group_tests(tests, NULL, cleanup);
}
