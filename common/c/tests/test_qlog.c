/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "qlog.h"

static char dir[] = "/tmp/test-qlog.XXXXXX", path[512];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* Returns the content of the only file and sets `path` to its name. */
static char *content(void)
{
    static char text[8192];
    DIR *d = opendir(dir);

    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    closedir(d);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void test_records(void **state)
{
    struct qlog *q = qlog_open(dir, "mldm", "urn:x");

    (void)state;
    assert_non_null(q);
    qlog_event(q, "fmtp:product_sent", "\"index\":%u", 7u);
    char *text = content(), *second = strchr(text + 1, '\x1e');
    assert_int_equal(*text, '\x1e');
    assert_non_null(strstr(text, "\"file_schema\":\"urn:ietf:params:qlog:file:sequential\""));
    assert_non_null(strstr(text, "\"event_schemas\":[\"urn:x\"]}}\n"));
    assert_non_null(second);
    double time_ms = 0;
    assert_int_equal(sscanf(second, "\x1e{\"time\":%lf,", &time_ms), 1);
    assert_true(time_ms > 1.7e12 && time_ms < 1e14); /* milliseconds since 1970 */
    assert_string_equal(strstr(second, ",\"name\""),
                        ",\"name\":\"fmtp:product_sent\",\"data\":{\"index\":7}}\n");
    assert_non_null(strstr(path, "/mldm."));
    qlog_close(q);
}

/* A record that is too long is left out, not cut into invalid JSON. */
static void test_long_record(void **state)
{
    struct qlog *q = qlog_open(dir, "mldm", "urn:x");
    static char much[5000];

    (void)state;
    memset(much, 'x', sizeof much - 1);
    size_t before = strlen(content());
    qlog_event(q, "e", "\"a\":\"%s\"", much);
    assert_int_equal(strlen(content()), before);
    qlog_close(q);
}

static void test_texts(void **state)
{
    char out[QLOG_TEXT], lengthy[2 * QLOG_TEXT];

    (void)state;
    assert_string_equal(qlog_text(out, "a b"), "\"a b\"");
    assert_string_equal(qlog_text(out, "\"\\\n\x1e\xc3"), "\"\\\"\\\\???\"");
    memset(lengthy, '"', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    size_t n = strlen(qlog_text(out, lengthy));
    assert_true(n < QLOG_TEXT && n > QLOG_TEXT - 8);
    assert_int_equal(n % 2, 0); /* no escape character without the character it escapes */
    assert_int_equal(out[n - 1], '"');
}

static void test_none(void **state)
{
    (void)state;
    qlog_event(NULL, "e", "\"a\":%d", 1);
    qlog_close(NULL);
    assert_null(qlog_open("/nonexistent/folder", "mldm", "urn:x"));
    assert_int_equal(errno, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_records, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_record, set_up, tear_down),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
