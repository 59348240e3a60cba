/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes answers of the path service: the first byte chooses the HTTP status, the rest is the body,
 * given to a machine that awaits an answer about a leaf. Whatever arrives, it repeats the request
 * or has told the user.
 */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "fuzz.h"
#include "ldmd/pathservice.h"

static unsigned told;

static void verdict(void *ctx, void *user, enum path_verdict v)
{
    (void)ctx;
    (void)user;
    (void)v;
    told++;
}

static void answer(struct pathservice *p, unsigned status, const char *body, size_t n, uint64_t now)
{
    struct path_answer a = {.status = status, .body = body, .body_bytes = n};

    pathservice_answer(p, &a, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned codes[] = {0, 200, 201, 204, 404, 409, 422, 504};
    static const char made[] = "{\"name\":\"N\",\"root\":{\"switch\":\"s\",\"port\":1,\"vlan\":2},"
                               "\"rate_bps\":1000,\"leaves\":[]}";
    struct path_config c = {.name = "N",
                            .root = {"s", 1, 2},
                            .rate_bps = 1000,
                            .timeout_ns = 1000000000000,
                            .verdict = verdict};
    struct path_endpoint leaf = {"s", 3, 4};
    struct pathservice *p = pathservice_new(&c, 0);
    unsigned status = size > 0 ? codes[data[0] % (sizeof codes / sizeof codes[0])] : 0;
    const char *body = size > 0 ? (const char *)data + 1 : "";
    size_t n = size > 0 ? size - 1 : 0;
    bool first = size > 0 && (data[0] & 0x80) != 0;

    log_set_level(LOG_LVL_ERROR);
    told = 0;
    struct path_request r;
    if (!p || !pathservice_want(p, &leaf, p, 0) || !pathservice_request(p, 0, &r))
        abort();
    if (!first) {
        answer(p, 201, made, sizeof made - 1, 0);
        if (!pathservice_request(p, 0, &r))
            abort();
    }
    answer(p, status, body, n, 0);
    if (told > 1 || (told == 0 && pathservice_deadline(p) > 100000000000))
        abort();
    for (uint64_t now = 0; now < 100000000000; now += 1000000000)
        if (pathservice_request(p, now, &r))
            answer(p, status, body, n, now);
    pathservice_finish(p, 100000000000);
    pathservice_free(p);
    return 0;
}
