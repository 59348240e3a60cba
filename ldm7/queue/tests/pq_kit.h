/* SPDX-License-Identifier: Apache-2.0
 *
 * A queue with products whose bytes and metadata follow from their number. Include this after
 * cmocka.h; pq_place.h says where the queue lies.
 */
#ifndef PQ_KIT_H
#define PQ_KIT_H

#include <string.h>

#include "pq_place.h"
#include "queue/pq_impl.h"

static inline struct pq *fresh(uint64_t data_bytes, uint32_t slots)
{
    struct pq *q;
    assert_int_equal(pq_create(path, data_bytes, slots, true), PQ_OK);
    assert_int_equal(pq_open(path, true, &q), PQ_OK);
    return q;
}

static inline struct pq_info info_of(unsigned n, uint32_t size)
{
    struct pq_info i = {.creation = {1000 + n, n},
                        .feedtype = 0x800000,
                        .seqno = n,
                        .size = size,
                        .origin = "here"};
    memcpy(i.signature.bytes, &n, sizeof n);
    snprintf(i.ident, sizeof i.ident, "p.%u", n);
    return i;
}

static inline uint8_t byte_of(unsigned n, uint32_t at)
{
    return (uint8_t)(n * 7 + at * 31 + (at >> 8));
}

static inline enum pq_status put(struct pq *q, unsigned n, uint32_t size)
{
    uint8_t *data = malloc(size + 1);
    for (uint32_t i = 0; i < size; i++)
        data[i] = byte_of(n, i);
    struct pq_info info = info_of(n, size);
    enum pq_status s = pq_insert(q, &info, data);
    free(data);
    return s;
}

static inline void assert_is(const struct pq_view *v, unsigned n)
{
    struct pq_info want = info_of(n, v->info.size);
    assert_memory_equal(&v->info.signature, &want.signature, 16);
    assert_string_equal(v->info.ident, want.ident);
    assert_string_equal(v->info.origin, "here");
    assert_int_equal(v->info.creation.tv_sec, 1000 + n);
    assert_int_equal(v->info.seqno, n);
    for (uint32_t i = 0; i < v->info.size; i++)
        assert_int_equal(v->data[i], byte_of(n, i));
}

/* Requires that these are exactly the queue's products, in order. */
static inline void assert_holds(struct pq *q, const unsigned *want, size_t count)
{
    struct pq_view v;
    uint64_t after = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pq_next(q, after, &v), PQ_OK);
        assert_true(v.seq > after);
        after = v.seq;
        assert_is(&v, want[i]);
        pq_release(q, &v);
    }
    assert_int_equal(pq_next(q, after, &v), PQ_END);
    assert_int_equal(pq_check(q), PQ_OK);
}
#define HOLDS(q, ...)                                         \
    do {                                                      \
        const unsigned want_[] = {__VA_ARGS__};               \
        assert_holds(q, want_, sizeof want_ / sizeof *want_); \
    } while (0)

#endif
