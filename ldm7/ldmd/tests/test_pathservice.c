/* SPDX-License-Identifier: Apache-2.0
 *
 * A MULTICAST entry's path in virtual time, against a small path service of the test's own. Targets
 * and bodies are written by hand from docs/contracts.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/log.h"
#include "ldmd/pathservice.h"

#define S 1000000000ull
#define TIMEOUT_S 25u
#define GRACE_S 20u

static const struct path_endpoint root = {"s1", 1, 101};

static struct path_endpoint leaf(unsigned i)
{
    struct path_endpoint e = {.port = i + 1, .vlan = (uint16_t)(200 + i)};

    snprintf(e.switch_id, sizeof e.switch_id, "sw");
    return e;
}

/* ------------------------------------------------------------------ users */

#define USERS 64
static int verdicts[USERS]; /* -1: none yet */
static unsigned nverdicts[USERS];

static void verdict(void *ctx, void *user, enum path_verdict v)
{
    int *at = user;

    (void)ctx;
    *at = (int)v;
    nverdicts[at - verdicts]++;
}

static struct pathservice *start(void)
{
    struct path_config c = {.name = "NGRID",
                            .root = root,
                            .rate_bps = 20000000,
                            .timeout_ns = TIMEOUT_S * S,
                            .grace_ns = GRACE_S * S,
                            .verdict = verdict};
    struct pathservice *p = pathservice_new(&c, 0);

    assert_non_null(p);
    for (unsigned i = 0; i < USERS; i++) {
        verdicts[i] = -1;
        nverdicts[i] = 0;
    }
    return p;
}

static void want(struct pathservice *p, unsigned user, unsigned at, uint64_t now)
{
    struct path_endpoint e = leaf(at);

    assert_true(pathservice_want(p, &e, &verdicts[user], now));
}

static void unwant(struct pathservice *p, unsigned user, uint64_t now)
{
    pathservice_unwant(p, &verdicts[user], now);
}

/* ------------------------------------------------------------------ requests and answers */

static void expect_request(struct pathservice *p, uint64_t now, enum path_method method,
                           const char *target, const char *body)
{
    struct path_request r;

    assert_true(pathservice_request(p, now, &r));
    assert_int_equal(r.method, method);
    assert_string_equal(r.target, target);
    assert_string_equal(r.body, body);
    assert_false(pathservice_request(p, now, &r)); /* one at a time */
}

static void expect_nothing(struct pathservice *p, uint64_t now)
{
    struct path_request r;

    assert_false(pathservice_request(p, now, &r));
}

static void answer(struct pathservice *p, uint64_t now, unsigned status, const char *body)
{
    struct path_answer a = {.status = status, .body = body, .body_bytes = strlen(body)};

    pathservice_answer(p, &a, now);
}

/* A path with the leaves of a set of bits; those of `down` are not served. */
static const char *view(unsigned leaves, unsigned down)
{
    static char text[8192];
    size_t n =
        (size_t)snprintf(text, sizeof text,
                         "{\"name\":\"NGRID\",\"state\":\"degraded\",\"root\":{"
                         "\"switch\":\"s1\",\"port\":1,\"vlan\":101,\"macs\":[]},\"rate_bps\":"
                         "20000000,\"leaves\":[");

    for (unsigned i = 0; i < 32; i++)
        if ((leaves & 1u << i) != 0)
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  "{\"switch\":\"sw\",\"port\":%u,\"vlan\":%u,\"macs\":[]%s},",
                                  i + 1, 200 + i,
                                  (down & 1u << i) != 0 ? ",\"state\":\"down\"" : "");
    if (leaves != 0)
        n--;
    snprintf(text + n, sizeof text - n, "],\"edges\":[],\"groups\":[]}");
    return text;
}

#define CREATE \
    "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":101},\"rate_bps\":20000000}"
#define LEAF0 "{\"switch\":\"sw\",\"port\":1,\"vlan\":200}"
#define LEAF1 "{\"switch\":\"sw\",\"port\":2,\"vlan\":201}"
#define NO_PATH \
    "{\"type\":\"urn:downpour:problem:unknown-path\",\"title\":\"Unknown path\",\"status\":404}"
#define PROBLEM \
    "{\"type\":\"urn:downpour:problem:no-capacity\",\"title\":\"Not enough capacity\",\"status\":409,\"detail\":\"link a-b\"}"

static void make(struct pathservice *p, unsigned found)
{
    expect_request(p, 0, PATH_POST, "/v1/paths", CREATE);
    answer(p, 0, found != 0 ? 200 : 201, view(found, 0));
}

/* ------------------------------------------------------------------ tests */

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
    want(p, 3, 0, 3 * S); /* is there: nothing to ask */
    assert_int_equal(verdicts[3], PATH_CONFIRMED);
    unwant(p, 0, 3 * S);
    unwant(p, 3, 3 * S);
    expect_nothing(p, 3 * S);
    unwant(p, 1, 4 * S); /* the last one */
    expect_request(p, 4 * S, PATH_DELETE, "/v1/paths/NGRID/leaves/sw/1/200", "");
    want(p, 1, 0, 4 * S); /* comes back meanwhile: to be added again */
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
        want(p, 0, 0, 1 * S); /* asks again: so do we */
        expect_request(p, 1 * S, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
        answer(p, 1 * S, 201, view(1, 0));
        assert_int_equal(verdicts[0], PATH_CONFIRMED);
        pathservice_free(p);
    }
}

/* Until the time is over; then the leaf, which may or may not be there, goes. */
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
    assert_true(pathservice_request(p, 0, &r)); /* at once, in full */
    assert_string_equal(r.body, LEAF1);
    assert_false(r.brief);
    answer(p, 0, 200, view(3, 1)); /* it is the other one */
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

/* What an earlier life left goes after a while, unless a subscriber comes back. */
static void leftovers(void **state)
{
    struct pathservice *p = start();

    (void)state;
    make(p, 7);
    expect_nothing(p, 1 * S);
    want(p, 0, 1, 2 * S);
    expect_request(p, 2 * S, PATH_POST, "/v1/paths/NGRID/leaves", LEAF1); /* asked, not believed */
    answer(p, 2 * S, 200, view(7, 0));
    assert_int_equal(verdicts[0], PATH_CONFIRMED);
    want(p, 1, 2, 3 * S);
    unwant(p, 1, 3 * S); /* a subscriber came and went: no leftover any more */
    expect_request(p, 3 * S, PATH_DELETE, "/v1/paths/NGRID/leaves/sw/3/202", "");
    answer(p, 3 * S, 200, view(3, 0));
    expect_nothing(p, GRACE_S * S - 1);
    assert_int_equal(pathservice_deadline(p), GRACE_S * S);
    expect_request(p, GRACE_S * S, PATH_DELETE, "/v1/paths/NGRID/leaves/sw/1/200", "");
    answer(p, GRACE_S * S, 200, view(2, 0));
    expect_nothing(p, GRACE_S * S);
    pathservice_free(p);
}

/* The service forgot a leaf, then everything; the subscribers that are there are not disturbed. */
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
    answer(p, now, 404, NO_PATH); /* and now the path */
    expect_request(p, now, PATH_POST, "/v1/paths", CREATE);
    answer(p, now, 201, view(0, 0));
    expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF0);
    answer(p, now, 201, view(1, 0));
    expect_request(p, now, PATH_POST, "/v1/paths/NGRID/leaves", LEAF1);
    answer(p, now, 201, view(3, 0));
    expect_nothing(p, now);
    now = 2 * PATH_AUDIT_S * S; /* a leaf that is not served is asked for until it is */
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

/* A service that never knows the path it has just made is not asked all the time. */
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
    expect_nothing(p, 5 * S - 1); /* no storm of requests, however many ask */
    expect_request(p, 5 * S, PATH_POST, "/v1/paths", CREATE);
    answer(p, 5 * S, 422, PROBLEM);
    assert_int_equal(nverdicts[0], 2);
    expect_nothing(p, 65 * S - 1);
    expect_request(p, 65 * S, PATH_POST, "/v1/paths", CREATE);
    answer(p, 65 * S, 201, view(0, 0));
    pathservice_free(p);
}

/* It may have been made all the same. */
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

/* A change that another domain has reserved is waited for. */
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

/* ------------------------------------------------------------------ anything goes wrong, at
 * random */

static uint64_t seed;

static unsigned draw(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % below;
}

/* The service: its path and leaves; does what it is told, and answers, or loses the one or the
 * other. */
static struct {
    bool exists;
    unsigned leaves;
} service;

static unsigned serve(const struct path_request *r, bool faulty)
{
    unsigned fate = faulty ? draw(8) : 7;
    const char *json = strstr(r->body, "\"port\":");

    if (fate == 0)
        return 0; /* the request is lost */
    if (fate == 1)
        return 503;
    unsigned port, vlan, status;
    if (strcmp(r->target, "/v1/paths") == 0) {
        status = service.exists ? 200 : 201;
        service.exists = true;
    } else if (!service.exists) {
        status = 404;
    } else if (r->method == PATH_POST) {
        assert_int_equal(sscanf(json, "\"port\":%u", &port), 1);
        status = (service.leaves & 1u << (port - 1)) != 0 ? 200 : 201;
        service.leaves |= 1u << (port - 1);
    } else if (sscanf(r->target, "/v1/paths/NGRID/leaves/sw/%u/%u", &port, &vlan) == 2) {
        status = (service.leaves & 1u << (port - 1)) != 0 ? 200 : 404;
        service.leaves &= ~(1u << (port - 1));
    } else {
        service.exists = false;
        service.leaves = 0;
        status = 204;
    }
    return fate == 2 ? 0 : fate == 3 ? 504 : status; /* the answer is lost, or late */
}

static void anything(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 300; run++) {
        struct pathservice *p = start();
        int at[USERS]; /* which leaf a user wants; -1: none */
        bool waiting[USERS] = {false};
        uint64_t now = 0, answer_due = UINT64_MAX;
        unsigned status = 0, wanted = 0;

        seed = run;
        service.exists = draw(2) != 0;
        service.leaves = service.exists ? draw(256) : 0;
        for (unsigned u = 0; u < USERS; u++)
            at[u] = -1;
        for (unsigned step = 0; step < 300; step++) {
            bool quiet = step > 150; /* no more faults, no subscriber comes or goes */
            uint64_t due = pathservice_deadline(p);

            now = quiet ? now : now + (uint64_t)draw(1000) * (S / 1000);
            if (quiet && answer_due != UINT64_MAX)
                due = answer_due;
            if (quiet && due > now)
                now = due;
            pathservice_tend(p, now);
            if (!quiet) {
                unsigned u = draw(16);

                if (at[u] >= 0 && draw(3) == 0) {
                    unwant(p, u, now);
                    at[u] = -1;
                    waiting[u] = false;
                } else if (at[u] < 0) {
                    at[u] = (int)draw(8);
                    verdicts[u] = -1;
                    waiting[u] = true;
                    want(p, u, (unsigned)at[u], now);
                }
                if (draw(40) == 0)
                    service.leaves = 0; /* restarts without its memory */
                if (draw(40) == 0) {
                    service.exists = false;
                    service.leaves = 0;
                }
            }
            struct path_request r;
            if (answer_due == UINT64_MAX && pathservice_request(p, now, &r)) {
                status = serve(&r, !quiet);
                answer_due = now + (quiet ? 0 : (uint64_t)draw(3000) * (S / 1000));
            }
            if (now >= answer_due) {
                unsigned seen = service.leaves;

                answer_due = UINT64_MAX;
                answer(p, now, status,
                       status == 200 || status == 201 ? view(seen, 0)
                       : status == 404                ? NO_PATH
                                                      : "{}");
            }
            for (unsigned u = 0; u < 16; u++) {
                if (at[u] < 0 || verdicts[u] == -1)
                    continue;
                assert_int_not_equal(verdicts[u], PATH_REFUSED);
                waiting[u] = false;
                if (verdicts[u] == PATH_TIMED_OUT)
                    at[u] = -1;
            }
        }
        /* Long after: the service has what is wanted, and no subscriber waits. */
        for (unsigned u = 0; u < 16; u++) {
            assert_false(waiting[u]);
            if (at[u] >= 0)
                wanted |= 1u << at[u];
        }
        if (!service.exists || service.leaves != wanted)
            fail_msg("run %u: the service has %x, wanted is %x", run, service.leaves, wanted);
        pathservice_finish(p, now);
        for (unsigned i = 0; i < 50 && !pathservice_is_finished(p); i++) {
            struct path_request r;

            if (pathservice_request(p, now, &r))
                answer(p, now, serve(&r, false), "");
            now += S;
        }
        assert_true(pathservice_is_finished(p));
        assert_false(service.exists);
        pathservice_free(p);
    }
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
        cmocka_unit_test(anything),
    };

    log_set_destination("/dev/null");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
