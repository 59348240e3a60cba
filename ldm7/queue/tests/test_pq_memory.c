/* SPDX-License-Identifier: Apache-2.0
 *
 * Each allocation of the queue fails once: the call returns PQ_SYSTEM with ENOMEM, nothing is held,
 * and the same call works once there is memory.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "failing_memory.h"
#include "pq_kit.h"

static void open_and_reserve(void **state)
{
    (void)state;
    struct pq *q = fresh(1 << 20, 16);
    pq_close(q);
    unsigned failures = 0;
    for (;; failures++) {
        memory_fails_at(failures + 1);
        enum pq_status s = pq_open(path, true, &q);
        int e = errno;
        if (!memory_failed()) {
            assert_int_equal(s, PQ_OK);
            break;
        }
        assert_int_equal(s, PQ_SYSTEM);
        assert_int_equal(e, ENOMEM);
    }
    assert_true(failures >= 2);                  /* the queue, and the list of mapped chunks */
    assert_int_equal(pq_clients(q, NULL, 0), 1); /* those that failed hold nothing */

    struct pq_reservation *r;
    void *region;
    memory_fails_at(1);
    assert_int_equal(pq_reserve(q, NULL, 100, &region, &r), PQ_SYSTEM);
    assert_int_equal(errno, ENOMEM);
    assert_true(memory_failed());
    struct pq_stats stats;
    pq_get_stats(q, &stats);
    assert_int_equal(stats.reserved_slots, 0);
    assert_int_equal(put(q, 1, 100), PQ_OK);
    HOLDS(q, 1);
    pq_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(open_and_reserve)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
