/* SPDX-License-Identifier: Apache-2.0 */
#include "pathservice_kit.h"

#include <stdio.h>
#include <string.h>

static const struct path_endpoint root = {"s1", 1, 101};

struct path_endpoint leaf(unsigned i)
{
    struct path_endpoint e = {.port = i + 1, .vlan = (uint16_t)(200 + i)};

    snprintf(e.switch_id, sizeof e.switch_id, "sw");
    return e;
}

/* ------------------------------------------------------------------ users */

int verdicts[USERS]; /* -1: none yet */
unsigned nverdicts[USERS];

static void verdict(void *ctx, void *user, enum path_verdict v)
{
    int *at = user;

    (void)ctx;
    *at = (int)v;
    nverdicts[at - verdicts]++;
}

struct pathservice *start(void)
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

void want(struct pathservice *p, unsigned user, unsigned at, uint64_t now)
{
    struct path_endpoint e = leaf(at);

    assert_true(pathservice_want(p, &e, &verdicts[user], now));
}

void unwant(struct pathservice *p, unsigned user, uint64_t now)
{
    pathservice_unwant(p, &verdicts[user], now);
}

/* ------------------------------------------------------------------ requests and answers */

void expect_request(struct pathservice *p, uint64_t now, enum path_method method,
                    const char *target, const char *body)
{
    struct path_request r;

    assert_true(pathservice_request(p, now, &r));
    assert_int_equal(r.method, method);
    assert_string_equal(r.target, target);
    assert_string_equal(r.body, body);
    assert_false(pathservice_request(p, now, &r)); /* one at a time */
}

void expect_nothing(struct pathservice *p, uint64_t now)
{
    struct path_request r;

    assert_false(pathservice_request(p, now, &r));
}

void answer(struct pathservice *p, uint64_t now, unsigned status, const char *body)
{
    struct path_answer a = {.status = status, .body = body, .body_bytes = strlen(body)};

    pathservice_answer(p, &a, now);
}

/* Returns a path with the leaves whose bits are set; those of `down` are not served. */
const char *view(unsigned leaves, unsigned down)
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

void make(struct pathservice *p, unsigned found)
{
    expect_request(p, 0, PATH_POST, "/v1/paths", CREATE);
    answer(p, 0, found != 0 ? 200 : 201, view(found, 0));
}
