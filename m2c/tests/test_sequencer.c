/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequencer: the guarantees of the report on it as properties of random plans, a plan like
 * Figure 2c's worked out by hand, and its header and receiving side.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sequencer.h"
#include "sim/random.h"

#define SECOND UINT64_C(1000000000)

static struct m2c_wave wave_of(unsigned layers, double base)
{
    struct m2c_wave w;
    const struct m2c_wave_config cfg = {.layers = layers, .base_packets_per_s = base};

    assert_int_equal(m2c_wave_init(&w, &cfg), 0);
    return w;
}

static struct m2c_plan plan_of(const struct m2c_wave *w, uint64_t start, uint64_t end,
                               uint32_t pdus)
{
    struct m2c_plan p;

    assert_int_equal(m2c_plan_init(&p, w, start, end, pdus), 0);
    return p;
}

/* By hand, with slots of 10 s, layers 0 to 2 and one packet/s: a slot has 9, 12 and 15 packets. In
 * two slots the order is by layer, and within a layer the later slot comes first. Within a tile the
 * first PDU is sent last. */
static void test_two_slots(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(2, 1);
    static const uint32_t first[2][3] = {{9, 30, 57}, {0, 18, 42}};
    struct m2c_plan p = plan_of(&w, 20 * SECOND, 40 * SECOND, 72);

    assert_int_equal(p.intervals, 2);
    assert_int_equal(p.first_slot, 2);
    assert_int_equal(p.packets, 72);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t layer = 0; layer < 3; layer++)
            assert_int_equal(m2c_plan_tile(&p, i, layer)->pdu, first[i][layer]);
    assert_int_equal(m2c_plan_pdu(&p, 0, 0, 0), 17);
    assert_int_equal(m2c_plan_pdu(&p, 0, 0, 8), 9);
    assert_int_equal(m2c_plan_pdu(&p, 1, 2, 0), 56);
    m2c_plan_free(&p);

    /* A short buffer leaves out the packets that the fewest receivers hear. */
    p = plan_of(&w, 20 * SECOND, 40 * SECOND, 20);
    assert_int_equal(m2c_plan_pdu(&p, 1, 1, 9), M2C_NO_PDU);
    assert_int_equal(m2c_plan_pdu(&p, 1, 1, 10), 19);
    assert_int_equal(m2c_plan_pdu(&p, 1, 1, 11), 18);
    assert_int_equal(m2c_plan_pdu(&p, 0, 1, 11), M2C_NO_PDU);
    m2c_plan_free(&p);
}

struct case_of {
    struct m2c_wave w;
    struct m2c_plan p;
};

static struct case_of any_case(uint64_t *random)
{
    struct case_of c;
    const uint64_t start = tp_random_bits(random) * UINT64_C(100);
    const uint64_t length = SECOND / 2 + tp_random_below(random, 60000) * UINT64_C(1000000);

    c.w = wave_of(1 + tp_random_below(random, 12), 1 + tp_random_below(random, 50) / 10.0);
    struct m2c_plan all = plan_of(&c.w, start, start + length, UINT32_MAX);
    const uint32_t packets = all.packets ? all.packets : 1;
    m2c_plan_free(&all);
    /* Too few, just enough, or too many. */
    const uint32_t pdus = 1 + tp_random_below(random, packets + packets / 4);
    c.p = plan_of(&c.w, start, start + length, tp_random_chance(random, 0.3) ? packets : pdus);
    return c;
}

/* Returns how many of the PDUs a receiver of `layers` layers hears; *prefix: how many without a
 * gap. late < 0: it hears all layers all the time; otherwise it hears the highest one only from
 * packet `late` of interval `from` on. */
static uint32_t heard(const struct m2c_plan *p, uint32_t layers, uint32_t from, int64_t late,
                      uint32_t *prefix)
{
    uint8_t *got = calloc(1, p->pdus);
    uint32_t count = 0;

    assert_non_null(got);
    for (uint32_t i = 0; i < p->intervals; i++)
        for (uint32_t layer = 0; layer < layers; layer++)
            for (uint32_t s = 0; s < m2c_plan_tile(p, i, layer)->packets; s++) {
                const bool is_top = late >= 0 && layer == layers - 1;
                const uint32_t pdu = m2c_plan_pdu(p, i, layer, s);
                if ((is_top && (i < from || (i == from && s < late))) || pdu == M2C_NO_PDU)
                    continue;
                assert_true(pdu < p->pdus && !got[pdu]); /* each in one tile, once */
                got[pdu] = 1;
                count++;
            }
    for (*prefix = 0; *prefix < p->pdus && got[*prefix];)
        ++*prefix;
    free(got);
    return count;
}

/* Each PDU is in exactly one tile, and a receiver of layers 0 to m hears a prefix. */
static void test_layers_are_prefixes(void **state)
{
    (void)state;
    uint64_t random = 1;

    for (unsigned n = 0; n < 300; n++) {
        struct case_of c = any_case(&random);
        uint32_t before = 0, prefix;
        for (uint32_t layers = 1; layers <= c.p.layers; layers++) {
            const uint32_t count = heard(&c.p, layers, 0, -1, &prefix);
            assert_int_equal(count, prefix);
            assert_true(count >= before);
            before = count;
        }
        assert_int_equal(before, c.p.packets < c.p.pdus ? c.p.packets : c.p.pdus);
        m2c_plan_free(&c.p);
    }
}

/* A receiver that joins the next layer late, in a buffer that ends with a slot, hears a longer
 * prefix: each packet earlier adds exactly one PDU. */
static void test_late_joins_extend_the_prefix(void **state)
{
    (void)state;
    uint64_t random = 2;

    for (unsigned n = 0; n < 60; n++) {
        const struct m2c_wave w = wave_of(1 + tp_random_below(&random, 8), 1);
        const uint64_t first = tp_random_below(&random, 1000), slots = 1 + n % 4;
        const uint64_t start = first * 10 * SECOND + tp_random_below(&random, 9000) * SECOND / 1000;
        const uint64_t end = (first + slots) * 10 * SECOND;
        struct m2c_plan p = plan_of(&w, start, end, 5000);
        assert_true(p.packets <= p.pdus);
        for (uint32_t layers = 2; layers <= p.layers; layers++) {
            uint32_t prefix, without;
            heard(&p, layers - 1, 0, -1, &without);
            const uint32_t from = tp_random_below(&random, p.intervals);
            const uint32_t packets = m2c_plan_tile(&p, from, layers - 1)->packets;
            const uint32_t late = tp_random_below(&random, packets + 1);
            const uint32_t count = heard(&p, layers, from, late, &prefix);
            assert_int_equal(count, prefix);
            uint32_t later = packets - late;
            for (uint32_t i = from + 1; i < p.intervals; i++)
                later += m2c_plan_tile(&p, i, layers - 1)->packets;
            assert_int_equal(prefix, without + later);
        }
        m2c_plan_free(&p);
    }
}

/* Tiles are ordered by the rates that hear them: no tile precedes one that a lower rate hears. */
static void test_order_of_rates(void **state)
{
    (void)state;
    uint64_t random = 5;

    for (unsigned n = 0; n < 200; n++) {
        struct case_of c = any_case(&random);
        const size_t count = (size_t)c.p.intervals * c.p.layers;
        uint32_t sum = 0;
        for (size_t a = 0; a < count; a++) {
            const struct m2c_tile *x = &c.p.tiles[a];
            sum += x->pdus;
            for (size_t b = 0; b < count; b++) {
                const struct m2c_tile *y = &c.p.tiles[b];
                if (x->least_rate < y->least_rate)
                    assert_true(x->pdu + x->pdus <= y->pdu);
            }
        }
        assert_int_equal(sum, c.p.packets < c.p.pdus ? c.p.packets : c.p.pdus);
        m2c_plan_free(&c.p);
    }
}

/* Consecutive buffers leave out no packet and use none twice. */
static void test_plans_join(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(5, 2);
    uint64_t random = 6, now = 3 * SECOND;
    uint32_t sent = 0;

    while (now < 300 * SECOND) {
        const uint64_t end = now + 1 + tp_random_below(&random, 4000) * UINT64_C(10000000);
        struct m2c_plan p = plan_of(&w, now, end, 100);
        sent += p.packets;
        m2c_plan_free(&p);
        now = end;
    }
    struct m2c_plan whole = plan_of(&w, 3 * SECOND, now, 100);
    assert_int_equal(sent, whole.packets);
    m2c_plan_free(&whole);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(2, 1);
    struct m2c_plan p;

    assert_int_equal(m2c_plan_init(&p, &w, 5, 5, 1), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(m2c_plan_init(&p, &w, 5, 4, 1), -1);
    assert_int_equal(m2c_plan_init(&p, &w, 5, 6, 0), -1);
    assert_int_equal(m2c_plan_init(&p, &w, 0, 10240 * SECOND + 1, 1), -1);
    assert_int_equal(m2c_plan_init(&p, &w, 0, 10240 * SECOND, 1), 0);
    m2c_plan_free(&p);
}

static void test_header(void **state)
{
    (void)state;
    uint8_t bytes[M2C_SEQ_HEADER_BYTES];
    static const uint8_t expected[] = {1, 2, 3, 4, 0xfe, 0, 0, 9};
    struct m2c_seq_header h;

    m2c_seq_put(bytes, (struct m2c_seq_header){0x01020304, 0xfe000009});
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_true(m2c_seq_get(bytes, sizeof bytes, &h));
    assert_int_equal(h.buffer, 0x01020304);
    assert_int_equal(h.offset, 0xfe000009);
    assert_false(m2c_seq_get(bytes, sizeof bytes - 1, &h));
}

/* Compared with a map of bytes: parts in any order, overlapping or not. */
static void test_intake_is_a_map(void **state)
{
    (void)state;
    enum { BYTES = 400 };
    uint64_t random = 7;

    for (unsigned n = 0; n < 100; n++) {
        uint8_t data[BYTES], map[BYTES] = {0};
        struct m2c_intake in;
        assert_int_equal(m2c_intake_init(&in, BYTES, BYTES), 0);
        for (unsigned i = 0; i < BYTES; i++)
            data[i] = (uint8_t)tp_random_bits(&random);
        for (unsigned i = 0; i < 60; i++) {
            const uint32_t from = tp_random_below(&random, BYTES);
            const uint32_t most = BYTES - from < 30 ? BYTES - from : 30;
            const uint32_t len = 1 + tp_random_below(&random, most);
            const bool is_new = memchr(map + from, 0, len) != NULL;
            assert_int_equal(
                m2c_intake_packet(&in, (struct m2c_seq_header){9, from}, data + from, len),
                is_new ? M2C_SEQ_TAKEN : M2C_SEQ_DUPLICATE);
            memset(map + from, 1, len);
            uint32_t part = 0;
            for (uint32_t at = 0; at < BYTES; at++) {
                while (part < in.part_count && in.parts[part].to <= at)
                    part++;
                assert_int_equal(map[at], part < in.part_count && in.parts[part].from <= at);
                if (map[at])
                    assert_int_equal(in.bytes[at], data[at]);
            }
            const uint8_t *gap = memchr(map, 0, BYTES);
            assert_int_equal(m2c_intake_contiguous(&in), gap ? gap - map : BYTES);
        }
        m2c_intake_free(&in);
    }
}

static void test_intake_of_buffers(void **state)
{
    (void)state;
    struct m2c_intake in;
    const uint8_t data[4] = {1, 2, 3, 4};

    assert_int_equal(m2c_intake_init(&in, 100, 2), 0);
#define PACKET(buffer, offset, len) \
    m2c_intake_packet(&in, (struct m2c_seq_header){buffer, offset}, data, len)
    assert_int_equal(PACKET(UINT32_MAX, 0, 4), M2C_SEQ_TAKEN);
    assert_false(m2c_intake_ends(&in, (struct m2c_seq_header){UINT32_MAX, 4}));
    assert_true(m2c_intake_ends(&in, (struct m2c_seq_header){0, 0}));
    assert_int_equal(PACKET(0, 4, 4), M2C_SEQ_TAKEN); /* after the highest number */
    assert_int_equal(m2c_intake_contiguous(&in), 0);
    assert_int_equal(PACKET(UINT32_MAX, 4, 4), M2C_SEQ_STALE);
    assert_int_equal(PACKET(0, 97, 4), M2C_SEQ_REFUSED);
    assert_int_equal(PACKET(0, UINT32_MAX, 4), M2C_SEQ_REFUSED);
    assert_int_equal(PACKET(0, 50, 0), M2C_SEQ_REFUSED);
    assert_int_equal(PACKET(0, 96, 4), M2C_SEQ_TAKEN);
    assert_int_equal(PACKET(0, 50, 4), M2C_SEQ_REFUSED); /* a third part */
    assert_int_equal(PACKET(0, 8, 4), M2C_SEQ_TAKEN);    /* merged with the first */
    assert_int_equal(PACKET(0, 0, 4), M2C_SEQ_TAKEN);
    assert_int_equal(m2c_intake_contiguous(&in), 12);
    assert_int_equal(PACKET(0, 5, 4), M2C_SEQ_DUPLICATE);
    assert_int_equal(in.taken, 5);
    assert_int_equal(in.refused, 4);
    assert_int_equal(in.stale, 1);
    assert_int_equal(in.duplicate, 1);
#undef PACKET
    m2c_intake_free(&in);
    assert_int_equal(m2c_intake_init(&in, 0, 2), -1);
    assert_int_equal(m2c_intake_init(&in, 2, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_slots),
        cmocka_unit_test(test_layers_are_prefixes),
        cmocka_unit_test(test_late_joins_extend_the_prefix),
        cmocka_unit_test(test_order_of_rates),
        cmocka_unit_test(test_plans_join),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_intake_is_a_map),
        cmocka_unit_test(test_intake_of_buffers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
