/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of what a peer must still be told: what purging costs, and what it leaves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "requests.h"

enum { PRODUCTS = 4 };

struct queue {
    struct fmtp_requests q;
    uint64_t last[PRODUCTS]; /* heads of the products' lists */
};

static struct queue new_queue(size_t entries)
{
    struct queue x = {0};

    fmtp_requests_init(&x.q, entries * sizeof(struct fmtp_request));
    return x;
}

static int put(struct queue *x, uint32_t index, uint32_t flags, uint32_t seq)
{
    struct fmtp_request r = {.index = index, .flags = flags, .seq = seq, .end = seq + 10};

    return fmtp_requests_push(&x->q, &r, 0, index < PRODUCTS ? &x->last[index] : NULL);
}

static size_t purge(struct queue *x, uint32_t index, bool reject)
{
    return fmtp_requests_purge(&x->q, index, &x->last[index], reject);
}

/* The queue holds these (index, flags), from the head; 0, 0: purged. */
static void expect(const struct queue *x, size_t n, const uint32_t (*entries)[2])
{
    assert_int_equal(x->q.count, n);
    for (size_t i = 0; i < n; i++) {
        const struct fmtp_request *r = fmtp_requests_at(&x->q, i);
        assert_int_equal(r->flags, entries[i][1]);
        if (r->flags)
            assert_int_equal(r->index, entries[i][0]);
    }
}

/* A peer that reads nothing filled its queue: what others' products cost does not grow with it. */
static void a_purge_looks_only_at_its_product(void **state)
{
    struct queue x = new_queue(1 << 17);

    (void)state;
    for (uint32_t i = 0; i < 50000; i++)
        assert_int_equal(put(&x, 7 + i % 2, FMTP_RETX_EOP, 0), 0);
    put(&x, 1, FMTP_RETX_BOP, 0);
    put(&x, 7, FMTP_RETX_EOP, 0);
    put(&x, 1, FMTP_RETX_DATA, 100);
    put(&x, 8, FMTP_RETX_EOP, 0);
    put(&x, 2, FMTP_RETX_DATA, 0);
    assert_int_equal(purge(&x, 1, true), 2);
    assert_int_equal(x.q.looks, 2);
    assert_int_equal(x.q.purged, 1);
    assert_int_equal(fmtp_requests_at(&x.q, 50000)->flags, FMTP_RETX_REJ);
    assert_int_equal(purge(&x, 1, true), 0); /* none is left */
    assert_int_equal(purge(&x, 3, true), 0); /* never asked for */
    assert_int_equal(x.q.looks, 2);
    fmtp_requests_free(&x.q);
}

static void the_first_becomes_the_rejection(void **state)
{
    struct queue x = new_queue(64);

    (void)state;
    put(&x, 0, FMTP_RETX_DATA, 0);
    put(&x, 1, FMTP_RETX_DATA, 0);
    put(&x, 0, FMTP_RETX_DATA, 50);
    put(&x, 1, FMTP_RETX_EOP, 0);
    put(&x, 1, FMTP_RETX_DATA, 80);
    put(&x, 2, FMTP_RETX_BOP, 0);
    assert_int_equal(purge(&x, 1, true), 2);
    expect(&x, 6,
           (const uint32_t[][2]){{0, FMTP_RETX_DATA},
                                 {1, FMTP_RETX_REJ},
                                 {0, FMTP_RETX_DATA},
                                 {1, FMTP_RETX_EOP},
                                 {0, 0},
                                 {2, FMTP_RETX_BOP}});
    /* The ends are never purged entries. */
    assert_int_equal(purge(&x, 2, false), 1);
    assert_int_equal(x.q.count, 4);
    assert_int_equal(x.q.purged, 0);
    assert_int_equal(purge(&x, 0, false), 2);
    expect(&x, 3, (const uint32_t[][2]){{1, FMTP_RETX_REJ}, {0, 0}, {1, FMTP_RETX_EOP}});
    fmtp_requests_pop(&x.q);
    expect(&x, 1, (const uint32_t[][2]){{1, FMTP_RETX_EOP}});
    fmtp_requests_free(&x.q);
}

/* What was popped is in no list any more, whatever stands in its place now. */
static void what_was_sent_is_not_purged(void **state)
{
    struct queue x = new_queue(64);

    (void)state;
    for (uint32_t turn = 0; turn < 1000; turn++) {
        put(&x, 0, FMTP_RETX_DATA, turn * 20);
        put(&x, 1, FMTP_RETX_DATA, turn * 20);
        if (turn >= 20) {
            fmtp_requests_pop(&x.q);
            fmtp_requests_pop(&x.q);
        }
    }
    assert_int_equal(purge(&x, 0, false), 20);
    assert_int_equal(purge(&x, 0, false), 0);
    for (size_t i = 0; i < x.q.count; i++)
        assert_true(!fmtp_requests_at(&x.q, i)->flags || fmtp_requests_at(&x.q, i)->index == 1);
    assert_int_equal(purge(&x, 1, false), 20);
    assert_int_equal(x.q.count, 0);
    fmtp_requests_free(&x.q);
}

/* Without memory for lists, all entries are looked at. */
static void unlisted_entries_are_purged_too(void **state)
{
    struct queue x = new_queue(64);
    struct fmtp_request r = {.index = 1, .flags = FMTP_RETX_BOP};

    (void)state;
    put(&x, 0, FMTP_RETX_DATA, 0);
    fmtp_requests_push(&x.q, &r, 0, NULL);
    put(&x, 0, FMTP_RETX_DATA, 50);
    assert_int_equal(fmtp_requests_purge(&x.q, 1, NULL, true), 1);
    expect(&x, 3,
           (const uint32_t[][2]){{0, FMTP_RETX_DATA}, {1, FMTP_RETX_REJ}, {0, FMTP_RETX_DATA}});
    assert_int_equal(purge(&x, 0, false), 2);
    expect(&x, 1, (const uint32_t[][2]){{1, FMTP_RETX_REJ}});
    fmtp_requests_pop(&x.q);
    assert_false(x.q.unlisted);
    fmtp_requests_free(&x.q);
}

/* A full queue makes room of what was purged, but not again and again for a little. */
static void compaction_pays_for_itself(void **state)
{
    struct queue x = new_queue(4096);

    (void)state;
    for (uint32_t i = 0; i < 4096; i++)
        assert_int_equal(
            put(&x, i % 16 ? 7 + i % 2 : 0, i % 16 ? FMTP_RETX_EOP : FMTP_RETX_DATA, i * 20), 0);
    assert_int_equal(put(&x, 9, FMTP_RETX_EOP, 0), -1);
    assert_false(fmtp_requests_compact(&x.q)); /* nothing was purged */
    assert_int_equal(purge(&x, 0, false), 256);
    assert_true(fmtp_requests_compact(&x.q));
    assert_int_equal(x.q.count, 3840);
    for (size_t i = 0; i < x.q.count; i++)
        assert_int_equal(fmtp_requests_at(&x.q, i)->flags, FMTP_RETX_EOP);
    for (uint32_t i = 0; i < 255; i++)
        assert_int_equal(put(&x, 7 + i % 2, FMTP_RETX_EOP, 0), 0);
    put(&x, 1, FMTP_RETX_BOP, 0);
    assert_int_equal(purge(&x, 1, true), 1);
    assert_int_equal(put(&x, 9, FMTP_RETX_EOP, 0), -1);
    assert_false(fmtp_requests_compact(&x.q));
    fmtp_requests_free(&x.q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_purge_looks_only_at_its_product),
        cmocka_unit_test(the_first_becomes_the_rejection),
        cmocka_unit_test(what_was_sent_is_not_purged),
        cmocka_unit_test(unlisted_entries_are_purged_too),
        cmocka_unit_test(compaction_pays_for_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
