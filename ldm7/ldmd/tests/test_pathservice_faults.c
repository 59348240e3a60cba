/* SPDX-License-Identifier: Apache-2.0
 *
 * Random faults: subscribers come and go, requests and answers are lost or late, the service loses
 * its state. Once that ends, the service has what is wanted and no subscriber waits.
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

static uint64_t seed;

static unsigned draw(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % below;
}

/* The service: its path and leaves. It does what it is told and answers, or loses the request or
 * the answer. */
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

enum { ACTIVE = 16 }; /* users that come and go */

/* One run: the users' wishes, and the answer under way. */
struct world {
    struct pathservice *p;
    int at[USERS]; /* the leaf that a user wants; -1: none */
    bool waiting[USERS];
    uint64_t now, answer_due;
    unsigned status;
};

static void begin(struct world *w, unsigned run)
{
    *w = (struct world){.p = start(), .answer_due = UINT64_MAX};
    seed = run;
    service.exists = draw(2) != 0;
    service.leaves = service.exists ? draw(256) : 0;
    for (unsigned u = 0; u < USERS; u++)
        w->at[u] = -1;
}

/* A user comes or goes; now and then the service loses its leaves, or everything. */
static void disturb(struct world *w)
{
    unsigned u = draw(ACTIVE);

    if (w->at[u] >= 0 && draw(3) == 0) {
        unwant(w->p, u, w->now);
        w->at[u] = -1;
        w->waiting[u] = false;
    } else if (w->at[u] < 0) {
        w->at[u] = (int)draw(8);
        verdicts[u] = -1;
        w->waiting[u] = true;
        want(w->p, u, (unsigned)w->at[u], w->now);
    }
    if (draw(40) == 0)
        service.leaves = 0; /* it restarts without its state */
    if (draw(40) == 0) {
        service.exists = false;
        service.leaves = 0;
    }
}

/* quiet: time advances only to the next event. */
static void pass_time(struct world *w, bool quiet)
{
    uint64_t due = pathservice_deadline(w->p);

    w->now = quiet ? w->now : w->now + (uint64_t)draw(1000) * (S / 1000);
    if (quiet && w->answer_due != UINT64_MAX)
        due = w->answer_due;
    if (quiet && due > w->now)
        w->now = due;
    pathservice_tend(w->p, w->now);
}

static void talk(struct world *w, bool quiet)
{
    struct path_request r;

    if (w->answer_due == UINT64_MAX && pathservice_request(w->p, w->now, &r)) {
        w->status = serve(&r, !quiet);
        w->answer_due = w->now + (quiet ? 0 : (uint64_t)draw(3000) * (S / 1000));
    }
    if (w->now < w->answer_due)
        return;
    unsigned seen = service.leaves, status = w->status;
    w->answer_due = UINT64_MAX;
    answer(w->p, w->now, status,
           status == 200 || status == 201 ? view(seen, 0)
           : status == 404                ? NO_PATH
                                          : "{}");
}

static void hear_verdicts(struct world *w)
{
    for (unsigned u = 0; u < ACTIVE; u++) {
        if (w->at[u] < 0 || verdicts[u] == -1)
            continue;
        assert_int_not_equal(verdicts[u], PATH_REFUSED);
        w->waiting[u] = false;
        if (verdicts[u] == PATH_TIMED_OUT)
            w->at[u] = -1;
    }
}

static void end(struct world *w, unsigned run)
{
    unsigned wanted = 0;

    for (unsigned u = 0; u < ACTIVE; u++) {
        assert_false(w->waiting[u]);
        if (w->at[u] >= 0)
            wanted |= 1u << w->at[u];
    }
    if (!service.exists || service.leaves != wanted)
        fail_msg("run %u: the service has %x, wanted is %x", run, service.leaves, wanted);
    pathservice_finish(w->p, w->now);
    for (unsigned i = 0; i < 50 && !pathservice_is_finished(w->p); i++) {
        struct path_request r;

        if (pathservice_request(w->p, w->now, &r))
            answer(w->p, w->now, serve(&r, false), "");
        w->now += S;
    }
    assert_true(pathservice_is_finished(w->p));
    assert_false(service.exists);
    pathservice_free(w->p);
}

static void anything(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 300; run++) {
        struct world w;

        begin(&w, run);
        for (unsigned step = 0; step < 300; step++) {
            bool quiet = step > 150; /* no more faults, no subscriber comes or goes */

            pass_time(&w, quiet);
            if (!quiet)
                disturb(&w);
            talk(&w, quiet);
            hear_verdicts(&w);
        }
        end(&w, run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(anything)};

    log_set_destination("/dev/null");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
