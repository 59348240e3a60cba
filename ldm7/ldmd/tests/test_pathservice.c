/* SPDX-License-Identifier: Apache-2.0
 *
 * A MULTICAST entry's path in virtual time, with a small path service within the test. Targets and
 * bodies are written by hand from docs/reference/contracts.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/log.h"
#include "pathservice_kit.h"

static void joins_and_leaves(void **state)
{
    struct pathservice *p = start();

    (void)state;
    make(p, 0);
    assert_int_equal(pathservice_deadline(p), PATH_AUDIT_S * S);
    want(p, 0, 0, 1 * S);
    assert_int_equal(pathservice_deadline(p), 1 * S);
    expect_request(p, 1 * S, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    want(p, 1, 0, 1 * S); /* the same rack */
    want(p, 2, 1, 1 * S);
    assert_int_equal(verdicts[0], -1);
    answer(p, 2 * S, 201, view(1, 0));
    assert_int_equal(verdicts[0], PATH_CONFIRMED);
    assert_int_equal(verdicts[1], PATH_CONFIRMED);
    assert_int_equal(verdicts[2], -1);
    expect_request(p, 2 * S, PATH_POST, "/v1/paths/NGRID/leaves", LEAF1);
    answer(p, 2 * S, 201, view(3, 0));
    assert_int_equal(verdicts[2], PATH_CONFIRMED);
    want(p, 3, 0, 3 * S); /* exists: no request */
    assert_int_equal(verdicts[3], PATH_CONFIRMED);
    unwant(p, 0, 3 * S);
    unwant(p, 3, 3 * S);
    expect_nothing(p, 3 * S);
    unwant(p, 1, 4 * S); /* the last one */
    expect_request(p, 4 * S, PATH_DELETE, "/v1/paths/NGRID/leaves/sw/1/200", "");
    want(p, 1, 0, 4 * S); /* returns meanwhile: to be added again */
    answer(p, 4 * S, 200, view(2, 0));
    assert_int_equal(nverdicts[1], 1);
    expect_request(p, 4 * S, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, 4 * S, 201, view(3, 0));
    assert_int_equal(nverdicts[1], 2);
    expect_nothing(p, 5 * S);
    pathservice_finish(p, 5 * S);
    assert_false(pathservice_is_finished(p));
    expect_request(p, 5 * S, PATH_DELETE, "/v1/paths/NGRID", "");
    answer(p, 5 * S, 204, "");
    assert_true(pathservice_is_finished(p));
    pathservice_free(p);
}

static void leaves_while_added(void **state)
{
    struct pathservice *p = start();

    (void)state;
    make(p, 0);
    want(p, 0, 0, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    unwant(p, 0, 1 * S);
    answer(p, 2 * S, 201, view(1, 0));
    assert_int_equal(nverdicts[0], 0);
    expect_request(p, 2 * S, PATH_DELETE, "/v1/paths/NGRID/leaves/sw/1/200", "");
    answer(p, 2 * S, 404, "{}"); /* another client was faster */
    expect_nothing(p, 2 * S);
    pathservice_free(p);
}

static void refusals(void **state)
{
    static const unsigned codes[] = {400, 401, 403, 409, 422};

    (void)state;
    char text[PATH_TEXT_MAX];
    assert_string_equal(path_problem_text(PROBLEM, strlen(PROBLEM), text, sizeof text),
                        "Not enough capacity: link a-b");
    for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        struct pathservice *p = start();

        make(p, 0);
        want(p, 0, 0, 0);
        expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
        answer(p, 0, codes[i], PROBLEM);
        assert_int_equal(verdicts[0], PATH_REFUSED);
        expect_nothing(p, 1 * S);
        want(p, 0, 0, 1 * S); /* wants it again: requested again */
        expect_request(p, 1 * S, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
        answer(p, 1 * S, 201, view(1, 0));
        assert_int_equal(verdicts[0], PATH_CONFIRMED);
        pathservice_free(p);
    }
}

/* Until the time is over; then the leaf, which may or may not exist, is removed. */
static void not_confirmed(void **state)
{
    static const unsigned codes[] = {0, 408, 425, 429, 500, 502, 503, 504};

    (void)state;
    for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        struct pathservice *p = start();
        uint64_t now = 0;
        unsigned asked = 0;

        make(p, 0);
        want(p, 0, 0, 0);
        struct path_request r;
        while (verdicts[0] == -1) {
            assert_true(now <= TIMEOUT_S * S);
            if (pathservice_request(p, now, &r)) {
                assert_string_equal(r.target, "/v1/paths/NGRID/leaves");
                answer(p, now, codes[i], "{}");
                asked++;
            }
            assert_true(pathservice_deadline(p) > now);
            now = pathservice_deadline(p);
            pathservice_tend(p, now);
        }
        assert_int_equal(now, TIMEOUT_S * S);
        assert_int_equal(verdicts[0], PATH_TIMED_OUT);
        assert_in_range(asked, 5, 10); /* pauses of 1/4, 1/2, 1, 2, 4, 8, 10 s */
        while (!pathservice_request(p, now, &r))
            now = pathservice_deadline(p);
        assert_int_equal(r.method, PATH_DELETE);
        assert_string_equal(r.target, "/v1/paths/NGRID/leaves/sw/1/200");
        pathservice_free(p);
    }
}

static void confirmed_later(void **state)
{
    struct pathservice *p = start();

    (void)state;
    make(p, 0);
    want(p, 0, 0, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, 0, 504, "{}");
    uint64_t now = pathservice_deadline(p);
    expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, now, 200, view(1, 1)); /* known, but not served yet */
    assert_int_equal(verdicts[0], -1);
    now = pathservice_deadline(p);
    expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, now, 200, view(1, 0));
    assert_int_equal(verdicts[0], PATH_CONFIRMED);
    pathservice_free(p);
}

/* A summary is enough while the whole path is up; if it is not, the leaf's own state counts. */
static void summaries(void **state)
{
    static const char up[] = "{\"name\":\"NGRID\",\"state\":\"up\"}";
    static const char degraded[] = "{\"name\":\"NGRID\",\"state\":\"degraded\"}";
    struct pathservice *p = start();

    (void)state;
    make(p, 0);
    want(p, 0, 0, 0);
    struct path_request r;
    assert_true(pathservice_request(p, 0, &r));
    assert_true(r.brief);
    answer(p, 0, 201, up);
    assert_int_equal(verdicts[0], PATH_CONFIRMED);
    want(p, 1, 1, 0);
    assert_true(pathservice_request(p, 0, &r));
    answer(p, 0, 201, degraded);
    assert_int_equal(verdicts[1], -1);
    assert_true(pathservice_request(p, 0, &r)); /* immediately, in full */
    assert_string_equal(r.body, LEAF1);
    assert_false(r.brief);
    answer(p, 0, 200, view(3, 1)); /* the other one is not served */
    assert_int_equal(verdicts[1], PATH_CONFIRMED);
    want(p, 2, 2, 0);
    assert_true(pathservice_request(p, 0, &r));
    answer(p, 0, 201, "{\"name\":\"OTHER\",\"state\":\"up\"}");
    assert_int_equal(verdicts[2], -1);
    expect_nothing(p, 0);
    pathservice_free(p);
}

static void retry_after(void **state)
{
    struct pathservice *p = start();
    struct path_answer busy = {.status = 429, .retry_after_s = 7, .body = "{}", .body_bytes = 2};

    (void)state;
    make(p, 0);
    want(p, 0, 0, 0);
    want(p, 1, 1, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    pathservice_answer(p, &busy, 1 * S);
    assert_int_equal(pathservice_deadline(p), 8 * S); /* for everything */
    expect_nothing(p, 8 * S - 1);
    busy.retry_after_s = 1000000; /* bounded */
    expect_request(p, 8 * S, PATH_POST, "/v1/paths/NGRID/leaves", LEAF1);
    pathservice_answer(p, &busy, 8 * S);
    assert_int_equal(pathservice_deadline(p), TIMEOUT_S * S);
    pathservice_tend(p, TIMEOUT_S * S);
    assert_int_equal(pathservice_deadline(p), 68 * S);
    pathservice_free(p);
}

static void senseless_answers(void **state)
{
    static const char *const bodies[] = {
        "",
        "x",
        "[]",
        "{}",
        "{\"name\":\"NGRID\"}",
        "{\"name\":7}",
        "{\"name\":\"OTHER\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":101},\"rate_bps\":1,\"leaves\":[]}",
        "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":101},\"rate_bps\":1,\"leaves\":[]}",
        "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":101},\"rate_bps\":1,\"leaves\":[7]}",
        "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":0,\"vlan\":101},\"rate_bps\":1,\"leaves\":[]}",
        "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":4095},\"rate_bps\":1,\"leaves\":[]}",
        "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":101},\"rate_bps\":1.5,\"leaves\":[]}",
    };

    (void)state;
    for (unsigned i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct pathservice *p = start();

        make(p, 0);
        want(p, 0, 0, 0);
        expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
        answer(p, 0, 200, bodies[i]);
        assert_int_equal(verdicts[0], -1);
        uint64_t now = pathservice_deadline(p);
        assert_in_range(now, S / 4, S);
        expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
        answer(p, now, 201, view(1, 0));
        assert_int_equal(verdicts[0], PATH_CONFIRMED);
        pathservice_free(p);
    }
}

/* Leaves of an earlier process expire, unless a subscriber returns. */
static void leftovers(void **state)
{
    struct pathservice *p = start();

    (void)state;
    make(p, 7);
    expect_nothing(p, 1 * S);
    want(p, 0, 1, 2 * S);
    expect_request(p, 2 * S, PATH_POST, "/v1/paths/NGRID/leaves",
                   LEAF1); /* asked again, not assumed */
    answer(p, 2 * S, 200, view(7, 0));
    assert_int_equal(verdicts[0], PATH_CONFIRMED);
    want(p, 1, 2, 3 * S);
    unwant(p, 1, 3 * S); /* a subscriber came and went: removed immediately */
    expect_request(p, 3 * S, PATH_DELETE, "/v1/paths/NGRID/leaves/sw/3/202", "");
    answer(p, 3 * S, 200, view(3, 0));
    expect_nothing(p, GRACE_S * S - 1);
    assert_int_equal(pathservice_deadline(p), GRACE_S * S);
    expect_request(p, GRACE_S * S, PATH_DELETE, "/v1/paths/NGRID/leaves/sw/1/200", "");
    answer(p, GRACE_S * S, 200, view(2, 0));
    expect_nothing(p, GRACE_S * S);
    pathservice_free(p);
}

/* The service lost a leaf, then everything; the subscribers that are present are not disturbed. */
static void audits(void **state)
{
    struct pathservice *p = start();
    uint64_t now = PATH_AUDIT_S * S;

    (void)state;
    make(p, 0);
    want(p, 0, 0, 0);
    want(p, 1, 1, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, 0, 201, view(1, 0));
    expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF1);
    answer(p, 0, 201, view(3, 0));
    assert_int_equal(pathservice_deadline(p), now);
    expect_request(p, now, PATH_POST, "/v1/paths", CREATE);
    answer(p, now, 200, view(6, 0)); /* 0 is lost, 2 belongs to no subscriber */
    expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, now, 404, NO_PATH); /* and now the path is lost */
    expect_request(p, now, PATH_POST, "/v1/paths", CREATE);
    answer(p, now, 201, view(0, 0));
    expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, now, 201, view(1, 0));
    expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF1);
    answer(p, now, 201, view(3, 0));
    expect_nothing(p, now);
    now = 2 * PATH_AUDIT_S * S; /* a leaf that is not served is requested until it is */
    expect_request(p, now, PATH_POST, "/v1/paths", CREATE);
    answer(p, now, 200, view(3, 2));
    want(p, 2, 1, now);
    assert_int_equal(nverdicts[2], 0);
    expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF1);
    answer(p, now, 200, view(3, 2));
    assert_int_equal(nverdicts[2], 0);
    expect_request(p, now + S, PATH_POST, "/v1/paths/NGRID/leaves", LEAF1);
    answer(p, now + S, 200, view(3, 0));
    assert_int_equal(verdicts[2], PATH_CONFIRMED);
    assert_int_equal(nverdicts[0] + nverdicts[1], 2);
    pathservice_free(p);
}

static void other_missing_things(void **state)
{
    struct pathservice *p = start();

    (void)state;
    make(p, 0);
    want(p, 0, 0, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, 0, 404, PROBLEM);
    assert_int_equal(verdicts[0], PATH_REFUSED);
    expect_nothing(p, 0);
    pathservice_free(p);
}

/* No flood of requests to a service that never knows the path it has just created. */
static void path_never_there(void **state)
{
    struct pathservice *p = start();
    unsigned asked = 0;

    (void)state;
    make(p, 0);
    want(p, 0, 0, 0);
    struct path_request r;
    for (uint64_t now = 0; now < TIMEOUT_S * S; now += S / 10)
        while (pathservice_request(p, now, &r)) {
            bool create = strcmp(r.target, "/v1/paths") == 0;

            answer(p, now, create ? 201 : 404, create ? view(0, 0) : NO_PATH);
            asked++;
        }
    assert_in_range(asked, 5, 20);
    pathservice_tend(p, TIMEOUT_S * S);
    assert_int_equal(verdicts[0], PATH_TIMED_OUT);
    pathservice_free(p);
}

static void path_refused(void **state)
{
    struct pathservice *p = start();

    (void)state;
    want(p, 0, 0, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths", CREATE);
    answer(p, 0, 403, PROBLEM);
    assert_int_equal(verdicts[0], PATH_REFUSED);
    want(p, 0, 0, 1 * S);
    expect_nothing(p, 5 * S - 1); /* no flood of requests, however many users want it */
    expect_request(p, 5 * S, PATH_POST, "/v1/paths", CREATE);
    answer(p, 5 * S, 422, PROBLEM);
    assert_int_equal(nverdicts[0], 2);
    expect_nothing(p, 65 * S - 1);
    expect_request(p, 65 * S, PATH_POST, "/v1/paths", CREATE);
    answer(p, 65 * S, 201, view(0, 0));
    pathservice_free(p);
}

/* The path may have been created nevertheless. */
static void path_not_answered(void **state)
{
    static const struct {
        unsigned status;
        const char *body;
    } lost[] = {{0, ""}, {504, "{}"}, {201, "x"}};

    (void)state;
    for (unsigned i = 0; i < sizeof lost / sizeof lost[0]; i++) {
        struct pathservice *p = start();

        expect_request(p, 0, PATH_POST, "/v1/paths", CREATE);
        answer(p, 0, lost[i].status, lost[i].body);
        pathservice_finish(p, 0);
        assert_false(pathservice_is_finished(p));
        expect_request(p, 0, PATH_DELETE, "/v1/paths/NGRID", "");
        answer(p, 0, 404, NO_PATH);
        assert_true(pathservice_is_finished(p));
        pathservice_free(p);
    }
}

static void path_of_another_owner(void **state)
{
    struct pathservice *p = start();

    (void)state;
    want(p, 0, 0, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths", CREATE);
    answer(p, 0, 409, PROBLEM);
    expect_request(p, 0, PATH_GET, "/v1/paths/NGRID", "");
    answer(p, 0, 200,
           "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":102},"
           "\"rate_bps\":20000000,\"leaves\":[]}");
    assert_int_equal(verdicts[0], PATH_REFUSED);
    pathservice_finish(p, 1 * S); /* is not deleted */
    assert_true(pathservice_is_finished(p));
    pathservice_free(p);
}

static void earlier_path_with_another_rate(void **state)
{
    struct pathservice *p = start();

    (void)state;
    want(p, 0, 0, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths", CREATE);
    answer(p, 0, 409, PROBLEM);
    expect_request(p, 0, PATH_GET, "/v1/paths/NGRID", "");
    answer(p, 0, 200,
           "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":101},"
           "\"rate_bps\":30000000,\"leaves\":[]}");
    expect_request(p, 0, PATH_DELETE, "/v1/paths/NGRID", "");
    answer(p, 0, 204, "");
    make(p, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, 0, 201, view(1, 0));
    assert_int_equal(verdicts[0], PATH_CONFIRMED);
    pathservice_free(p);
}

/* After a change that another domain has reserved, the request is repeated. */
static void held(void **state)
{
    static const char body[] = "{\"type\":\"urn:downpour:problem:path-held\",\"title\":\"held\"}";
    struct pathservice *p = start();

    (void)state;
    make(p, 0);
    want(p, 0, 0, 0);
    expect_request(p, 0, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, 0, 409, body);
    assert_int_equal(verdicts[0], -1);
    assert_int_equal(pathservice_deadline(p), S / 4);
    pathservice_free(p);
}

static void endpoints(void **state)
{
    (void)state;
    struct path_endpoint e;
    const char *why;
    assert_true(path_endpoint_set(&e, "sdn-sw.ashb/1 \"", "7", 5, &why) == false); /* blank */
    assert_true(path_endpoint_set(&e, "a/b?\"%", "4294967039", 4094, &why));
    char text[PATH_ENDPOINT_TEXT];
    assert_string_equal(path_endpoint_format(&e, text), "a/b?\"%:4294967039:4094");
    struct path_request r;
    path_request_remove(&r, "x.y-1", &e);
    assert_string_equal(r.target, "/v1/paths/x.y-1/leaves/a%2Fb%3F%22%25/4294967039/4094");
    path_request_add(&r, "x", &e);
    assert_string_equal(r.body, "{\"switch\":\"a/b?\\\"%\",\"port\":4294967039,\"vlan\":4094}");
    assert_false(path_endpoint_set(&e, "", "7", 5, &why));
    assert_false(path_endpoint_set(&e, "s", "et-1", 5, &why));
    assert_false(path_endpoint_set(&e, "s", "-1", 5, &why));
    assert_false(path_endpoint_set(&e, "s", "0", 5, &why));
    assert_false(path_endpoint_set(&e, "s", "4294967040", 5, &why));
    assert_false(path_endpoint_set(&e, "s", "99999999999999999999", 5, &why));
    assert_false(path_endpoint_set(&e, "s", "7", 0, &why));
    assert_false(path_endpoint_set(&e, "s", "7", 4095, &why));
    assert_false(path_endpoint_set(&e, "s\xc3", "7", 5, &why));
    char name[80];
    memset(name, 'n', 64);
    name[64] = '\0';
    assert_true(path_endpoint_set(&e, name, "7", 5, &why));
    memset(e.switch_id, '/', 64); /* the longest request fits */
    path_request_remove(&r, name, &e);
    assert_string_equal(r.target + strlen(r.target) - 4, "/7/5");
    memset(e.switch_id, '"', 64);
    path_request_create(&r, name, &e, INT64_MAX);
    assert_string_equal(r.body + strlen(r.body) - 20, "9223372036854775807}");
    name[64] = 'n';
    name[65] = '\0';
    assert_false(path_endpoint_set(&e, name, "7", 5, &why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_and_leaves),
        cmocka_unit_test(leaves_while_added),
        cmocka_unit_test(refusals),
        cmocka_unit_test(not_confirmed),
        cmocka_unit_test(confirmed_later),
        cmocka_unit_test(retry_after),
        cmocka_unit_test(summaries),
        cmocka_unit_test(senseless_answers),
        cmocka_unit_test(leftovers),
        cmocka_unit_test(audits),
        cmocka_unit_test(other_missing_things),
        cmocka_unit_test(path_never_there),
        cmocka_unit_test(path_refused),
        cmocka_unit_test(path_not_answered),
        cmocka_unit_test(path_of_another_owner),
        cmocka_unit_test(earlier_path_with_another_rate),
        cmocka_unit_test(held),
        cmocka_unit_test(endpoints),
    };

    log_set_destination("/dev/null");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
