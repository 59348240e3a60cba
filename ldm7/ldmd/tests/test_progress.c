/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ldmd/progress.h"

static struct pq_signature sig(uint32_t i)
{
    struct pq_signature s = {{0}};

    memcpy(s.bytes, &i, sizeof i);
    return s;
}

static void settle(struct progress *p, uint32_t index)
{
    struct pq_signature s = sig(index);

    progress_settled(p, index, &s);
}

static void assert_last(const struct progress *p, uint32_t index)
{
    struct pq_signature got, want = sig(index);

    assert_true(progress_last(p, &got));
    assert_memory_equal(&got, &want, sizeof want);
}

static void order(void **state)
{
    struct progress p = {0};

    (void)state;
    progress_start(&p);
    struct pq_signature got;
    assert_false(progress_last(&p, &got));
    progress_known(&p, 10);
    settle(&p, 11);
    settle(&p, 13);
    assert_false(progress_last(&p, &got)); /* 10 is open */
    settle(&p, 10);
    assert_last(&p, 11);            /* 12 was never announced, but must exist */
    progress_settled(&p, 12, NULL); /* 12 never comes: 13 is the newest */
    assert_last(&p, 13);
    progress_settled(&p, 14, NULL);
    assert_last(&p, 13);
    settle(&p, 9); /* long passed */
    assert_last(&p, 13);
    progress_start(&p);
    assert_false(progress_last(&p, &got));
    progress_free(&p);
}

static void first_ones_out_of_order(void **state)
{
    struct progress p = {0};

    (void)state;
    progress_start(&p);
    progress_known(&p, 2);
    progress_known(&p, 0xfffffffeu); /* four before it, across the wrap */
    settle(&p, 2);
    settle(&p, 0xfffffffeu);
    assert_last(&p, 0xfffffffeu);
    settle(&p, 0xffffffffu);
    settle(&p, 1);
    assert_last(&p, 0xffffffffu);
    settle(&p, 0);
    assert_last(&p, 2);
    progress_start(&p);
    settle(&p, 0);
    struct pq_signature got;
    assert_true(progress_last(&p, &got));
    progress_free(&p);
}

/* Whatever is claimed to exist, memory is bounded and the newest products count. */
static void bounded(void **state)
{
    struct progress p = {0};

    (void)state;
    progress_start(&p);
    progress_known(&p, 0);
    for (uint32_t i = 1; i < PROGRESS_MAX + 100; i++)
        settle(&p, i);
    assert_int_equal(p.given_up, 1);
    assert_int_equal(p.cap, PROGRESS_MAX);
    assert_last(&p, PROGRESS_MAX + 99);
    progress_known(&p, 0x40000000u); /* a jump does not discard what is settled */
    settle(&p, 0x40000000u);
    assert_last(&p, 0x40000000u);
    progress_known(&p, 0x40000001u);
    settle(&p, 0x40000001u + 3 * PROGRESS_MAX);
    assert_last(&p, 0x40000001u + 3 * PROGRESS_MAX);
    assert_int_equal(p.cap, PROGRESS_MAX);
    progress_free(&p);
}

/* Six products are settled in every order: never past an open one, eventually the newest. */
static void permutations(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 720; seed++) {
        struct progress p = {0};
        uint32_t left[6] = {0, 1, 2, 3, 4, 5};
        bool done[6] = {false};
        unsigned code = seed;

        progress_start(&p);
        progress_known(&p, 100);
        struct pq_signature got;
        for (unsigned n = 6; n > 0; n--) {
            unsigned at = code % n;
            uint32_t i = left[at], upto = 0;

            code /= n;
            memmove(left + at, left + at + 1, (n - at - 1) * sizeof left[0]);
            settle(&p, 100 + i);
            done[i] = true;
            while (upto < 6 && done[upto])
                upto++;
            if (upto == 0)
                assert_false(progress_last(&p, &got));
            else
                assert_last(&p, 100 + upto - 1);
        }
        progress_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),
        cmocka_unit_test(first_ones_out_of_order),
        cmocka_unit_test(bounded),
        cmocka_unit_test(permutations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
