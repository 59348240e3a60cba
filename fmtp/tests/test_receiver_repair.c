/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving core with extension 1: when it requests a group, and what it does with parity.
 */
#include <string.h>

#include "fec.h"
#include "repair_kit.h"

static uint8_t big_symbol[KIT_BLOCK];

/* A group is requested when a block of a later one arrives, not before; the last ones at EOP. */
static void test_passed(void **state)
{
    (void)state;
    open_product();
    kit_datagram(FMTP_MEM_DATA, 0, 0, 100, 1);
    blocks(2, 3); /* block 1 is lost */
    kit_expect_nothing();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 1, 0x2);
    kit_expect_nothing();
    blocks(7, 9); /* 4, 5, 6 and 9 are lost */
    kit_expect_repair(0, 1, 3, 0, 0, 2, 0x6);
    kit_expect_nothing();
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 2, 4, 0, 0, 2, 0x9);
    kit_expect_nothing();
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_nothing();
    assert_int_equal(kit_stats().repair_requests, 3);
    assert_int_equal(kit_stats().retx_requests, 0);
    kit_close();
    assert_int_equal(kit.nmissed, 1);
}

enum { EVENTS = 16 };
static struct event {
    uint32_t first,
        blocks; /* blocks: lost ones; first: that they are lost, NONE: requested, TIMER: expired */
    bool multicast; /* TIMER: patience */
} events[EVENTS];
static int nevents;
#define NONE UINT32_MAX
#define TIMER (UINT32_MAX - 1)

static void lost(void *ctx, uint32_t index, uint32_t first, uint32_t blocks)
{
    (void)ctx;
    assert_int_equal(index, 0);
    assert_true(nevents < EVENTS);
    events[nevents++] = (struct event){first, blocks, false};
}

static void requested(void *ctx, uint32_t index, uint32_t blocks, bool multicast)
{
    (void)ctx;
    assert_int_equal(index, 0);
    assert_true(nevents < EVENTS);
    events[nevents++] = (struct event){NONE, blocks, multicast};
}

static void expired(void *ctx, uint32_t index, bool patience)
{
    (void)ctx;
    assert_int_equal(index, 0);
    assert_true(nevents < EVENTS);
    events[nevents++] = (struct event){TIMER, 0, patience};
}

static void assert_events(const struct event *want, int n)
{
    assert_int_equal(nevents, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(events[i].first, want[i].first);
        assert_int_equal(events[i].blocks, want[i].blocks);
        assert_int_equal(events[i].multicast, want[i].multicast);
    }
    nevents = 0;
}

static void open_told(void)
{
    kit_reset();
    kit.cfg.lost = lost;
    kit.cfg.requested = requested;
    kit.cfg.expired = expired;
    nevents = 0;
    kit_open();
}

/* Each lost block and each request is reported once. */
static void test_told(void **state)
{
    (void)state;
    open_told();
    kit_session(true, 100, 4, 0, 77);
    kit_bop(0, 1000);
    blocks(1, 2); /* 0 and 2 are lost */
    assert_events(NULL, 0);
    blocks(3, 4);
    assert_events((struct event[]){{0, 1, false}, {2, 1, false}, {NONE, 2, true}}, 3);
    kit_parity(0, 0, 0, 2, parity_of(0, 3, 0), 100);
    kit_parity(0, 0, 1, 2, parity_of(0, 3, 1), 100); /* they are restored */
    blocks(6, 10);                                   /* 4 and 5 are lost */
    assert_events((struct event[]){{4, 2, false}, {NONE, 2, true}}, 2);
    /* No answer: requested again, finally on the connection. */
    kit_advance(1000 * MS); /* tau_rcv expires as well */
    assert_events((struct event[]){{TIMER, 0, false}, {TIMER, 0, true}, {NONE, 2, true}}, 3);
    for (int i = 1; i < 4; i++) {
        kit_advance(1000 * MS);
        assert_events((struct event[]){{TIMER, 0, true}, {NONE, 2, i < 3}}, 2);
    }
    kit_close();
}

static void test_told_ordinary(void **state)
{
    (void)state;
    open_told();
    kit_bop(0, 4 * KIT_BLOCK);
    kit_datagram(FMTP_MEM_DATA, 0, 2 * KIT_BLOCK, KIT_BLOCK, 1);
    assert_events((struct event[]){{0, 2, false}, {NONE, 2, false}}, 2);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    assert_events((struct event[]){{3, 1, false}, {NONE, 1, false}}, 2);
    kit_close();
    open_told(); /* its end is lost */
    kit_bop(0, 2 * KIT_BLOCK);
    kit_advance(1000 * MS);
    assert_events((struct event[]){{TIMER, 0, false}, {0, 2, false}, {NONE, 2, false}}, 3);
    kit_close();
}

static unsigned nfull;
static void queue_full(void *ctx, uint32_t index)
{
    (void)ctx;
    assert_int_equal(index, 0);
    nfull++;
}

/* Every other block is lost: more requests than may wait at once; 64 KiB bound them. */
static void test_told_full(void **state)
{
    (void)state;
    kit_reset();
    kit.bytes = (size_t)11000 * KIT_BLOCK;
    kit.cfg.queue_full = queue_full;
    kit_open();
    nfull = 0;
    kit_bop(0, 11000 * KIT_BLOCK);
    for (uint32_t i = 1; i < 10000; i += 2)
        kit_datagram(FMTP_MEM_DATA, 0, i * KIT_BLOCK, KIT_BLOCK, 1);
    assert_int_equal(nfull, 0);
    for (uint32_t i = 10001; i < 11000; i += 2)
        kit_datagram(FMTP_MEM_DATA, 0, i * KIT_BLOCK, KIT_BLOCK, 1);
    assert_int_equal(nfull, 1);
    kit_close();
}

/* Proactive parity: nothing is requested if it suffices; otherwise the rest is, when its last
 * symbol arrives. */
static void test_proactive(void **state)
{
    (void)state;
    open_product();
    blocks(0, 1);
    blocks(2, 3);
    kit_parity(0, 0, 0, 1, parity_of(0, 3, 0), 100);
    assert_int_equal(kit_stats().decoded_blocks, 1);
    assert_int_equal(kit.data[100], 2);
    blocks(3, 4); /* 4 and 5 are lost */
    kit_parity(0, 1, 0, 2, parity_of(3, 3, 0), 100);
    kit_expect_nothing();
    kit_parity(0, 1, 1, 2, parity_of(3, 3, 1), 100);
    kit_expect_nothing();
    blocks(6, 7);
    kit_parity(0, 2, 0, 1, parity_of(6, 4, 0), 100); /* 7, 8, 9 are lost: two more needed */
    kit_expect_repair(0, 2, 4, 1, 0, 2, 0xe);
    kit_parity(0, 2, 1, 3, parity_of(6, 4, 1), 100);
    assert_int_equal(kit.nended, 0);
    kit_parity(0, 2, 2, 3, parity_of(6, 4, 2), 100);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.retx, 0);
    kit_expect(FMTP_RETX_END, 0, 6, 0); /* 1, 4, 5, 7, 8 and 9 were lost */
    kit_expect_nothing();
    assert_product();
    assert_int_equal(kit_stats().decoded_blocks, 6);
    assert_int_equal(kit_stats().parity_symbols, 6);
    kit_close();
}

/* Proactive parity whose last symbol is lost: a block of the next group shows that the group
 * passed. */
static void test_lost_end(void **state)
{
    (void)state;
    open_product();
    blocks(0, 1);
    kit_parity(0, 0, 0, 2, repair_symbol, 100); /* 1 and 2 are lost, repair_symbol 1 as well */
    kit_expect_nothing();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 2, 0, 1, 0x6);
    kit_close();
}

/* The parity of a later group shows that the earlier ones passed. */
static void test_parity_passes(void **state)
{
    (void)state;
    open_product();
    kit_parity(0, 2, 0, 2, repair_symbol, 100);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 0, 3, 0x7);
    kit_expect_nothing();
    /* A block that is sent again shows nothing. */
    kit_close();
    open_product();
    kit_datagram(FMTP_REPAIR, 0, 900, 100, 10);
    kit_expect_nothing();
    assert_int_equal(kit_stats().repaired_blocks, 1);
    kit_close();
}

/* A burst ends and the group is still short: more is requested at once, with the new end. */
static void test_burst_short(void **state)
{
    (void)state;
    open_product();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_parity(0, 0, 0, 3, repair_symbol, 100);
    kit_expect_nothing();
    kit_parity(0, 0, 2, 3, repair_symbol, 100); /* 1 is lost */
    kit_expect_repair(0, 0, 3, 3, 0, 1, 0x7);
    /* The tail of the same burst again, late: no effect. */
    kit_parity(0, 0, 2, 3, repair_symbol, 100);
    kit_expect_nothing();
    kit_parity(0, 0, 3, 4, repair_symbol, 100);
    kit_expect_nothing();
    assert_int_equal(kit_stats().decoded_blocks, 3);
    kit_close();
}

/* RETX_DATA for a group that was requested by multicast counts and completes it. */
static void test_answered_by_stream(void **state)
{
    (void)state;
    open_product();
    blocks(2, 10);
    kit_expect_repair(0, 0, 3, 0, 0, 2, 0x3);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, 0, 100, 1), 0);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, 100, 100, 2), 0);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.retx, 2);
    assert_product();
    kit_expect(FMTP_RETX_END, 0, 2, 0);
    kit_expect_nothing();
    kit_close();
}

/* Fewer parity numbers are left than would suffice: it still requests, and the sender repeats
 * blocks. Patience ends as before. */
static void test_numbers_run_out(void **state)
{
    (void)state;
    open_product();
    kit_parity(0, 0, 250, 251, repair_symbol, 100); /* of 252; 3 missing, 1 in hand */
    kit_expect_repair(0, 0, 3, 251, 0, 2, 0x7);
    kit_parity(0, 0, 251, 252, repair_symbol, 100);
    kit_expect_repair(0, 0, 3, 252, 0, 1, 0x7);
    kit_expect_nothing();
    kit_datagram(FMTP_REPAIR, 0, 0, 100, 1);
    assert_int_equal(kit_stats().decoded_blocks, 2);
    kit_close();
}

/* Parity beyond the bound is dropped and requested again. */
static void test_parity_bound(void **state)
{
    (void)state;
    kit_reset();
    kit.cfg.parity_bytes = 1 * (sizeof(void *) * 2 + 100);
    kit_open();
    kit_session(true, 100, 4, 0, 1);
    kit_bop(0, 1000);
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_parity(0, 0, 0, 3, repair_symbol, 100);
    kit_parity(0, 0, 1, 3, repair_symbol, 100);
    assert_int_equal(kit_stats().parity_drops, 1);
    kit_parity(0, 0, 2, 3, repair_symbol, 100);
    assert_int_equal(kit_stats().parity_drops, 2);
    kit_expect_repair(0, 0, 3, 3, 0, 2, 0x7);
    kit_close();
}

static void test_malformed(void **state)
{
    (void)state;
    open_product();
    kit_parity(0, 3, 0, 1, repair_symbol, 100);   /* there are only 3 groups */
    kit_parity(0, 0, 1, 1, repair_symbol, 100);   /* end must be above the number */
    kit_parity(0, 0, 0, 253, repair_symbol, 100); /* 255 - 3 numbers */
    kit_parity(0, 0, 0, 1, repair_symbol, 99);
    kit_datagram(FMTP_REPAIR, 0, 50, 100, 1);
    kit_datagram(FMTP_REPAIR, 0, 1000, 100, 1);
    kit_datagram(FMTP_REPAIR, 0, 0, 99, 1);
    kit_datagram(FMTP_REPAIR_REQ, 0, 0, 5, 1);       /* not for us */
    kit_bytes(FMTP_MEM_DATA, 0, 0, big_symbol, 101); /* longer than a block */
    assert_int_equal(kit_stats().bad_messages, 9);
    assert_int_equal(kit.data[0], 0);
    kit_expect_nothing();
    kit_close();
    /* Without the extension these types are unknown. */
    kit_reset();
    kit_open();
    kit_bop(0, 3000);
    kit_parity(0, 0, 0, 1, big_symbol, KIT_BLOCK);
    kit_datagram(FMTP_REPAIR, 0, 0, KIT_BLOCK, 1);
    assert_int_equal(kit_stats().bad_messages, 2);
    kit_close();
}

/* Duplicates change nothing; late blocks make the parity suffice. */
static void test_late_block_decodes(void **state)
{
    (void)state;
    open_product();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_parity(0, 0, 0, 2, parity_of(0, 3, 0), 100);
    kit_parity(0, 0, 0, 2, parity_of(0, 3, 0), 100);
    kit_datagram(FMTP_REPAIR, 0, 200, 100, 3);
    assert_int_equal(kit_stats().decoded_blocks, 0);
    blocks(1, 2); /* reordered */
    assert_int_equal(kit_stats().decoded_blocks, 1);
    assert_int_equal(kit.data[0], 1);
    assert_int_equal(kit.data[299], 3);
    kit_parity(0, 0, 1, 2, repair_symbol, 100); /* for a complete group */
    kit_datagram(FMTP_REPAIR, 0, 0, 100, 9);
    assert_int_equal(kit.data[0], 1);
    assert_int_equal(kit_stats().duplicate_blocks, 1);
    kit_expect_nothing();
    kit_close();
}

/* A newer product: all groups of the previous one have passed; its EOP is not needed. */
static void test_newer_product(void **state)
{
    (void)state;
    open_product();
    blocks(1, 10);
    kit_expect_repair(0, 0, 3, 0, 0, 1, 0x1);
    kit_close();
    open_product();
    blocks(0, 9);
    kit_datagram(FMTP_MEM_DATA, 1, 0, 100, 1);
    kit_expect_repair(0, 2, 4, 0, 0, 1, 0x8);
    kit_expect(FMTP_BOP_REQ, 1, 0, 0);
    kit_expect_nothing();
    kit_close();
}

/* The last block is short: 950 bytes; parity restores 50 of its 100 bytes. */
static void test_short_last_block(void **state)
{
    uint8_t data[4][100] = {{0}}, parity[100], *const outs[] = {parity};
    const uint8_t *in[] = {data[0], data[1], data[2], data[3]};

    (void)state;
    kit_open_extended(4, 0);
    kit_bop(0, 950);
    for (int i = 0; i < 4; i++)
        memset(data[i], 7 + i, i == 3 ? 50 : 100);
    fmtp_fec_encode(4, 0, 1, 100, in, outs);
    blocks(0, 9);
    kit.data[950] = 0x5a; /* beyond the product */
    kit_parity(0, 2, 0, 1, parity, 100);
    assert_int_equal(kit.nended, 1);
    for (int i = 0; i < 950; i++)
        assert_int_equal(kit.data[i], i / 100 + 1);
    assert_int_equal(kit.data[950], 0x5a);
    kit_close();
    /* And if another block is missing. */
    kit_open_extended(4, 0);
    kit_bop(0, 950);
    blocks(0, 8);
    kit_datagram(FMTP_MEM_DATA, 0, 900, 50, 10);
    kit_parity(0, 2, 0, 1, parity, 100);
    assert_int_equal(kit.nended, 1);
    for (int i = 0; i < 950; i++)
        assert_int_equal(kit.data[i], i / 100 + 1);
    kit_close();
}

/* Many groups at once: the backlog of requests stays bounded; all are requested eventually, in
 * order, and each waits only from its request on. */
static void test_backlog(void **state)
{
    uint32_t asked = 0;
    size_t most = 0;

    (void)state;
    kit_open_extended(1, 0); /* 4000 groups of one block */
    kit_bop(0, 400000);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    const uint8_t *bytes;
    size_t n;
    while ((n = fmtp_receiver_output(kit.r, &bytes))) {
        most = n > most ? n : most;
        struct fmtp_header h;
        fmtp_header_get(bytes, &h);
        assert_int_equal(h.flags, FMTP_REPAIR_REQ);
        assert_int_equal(h.seqnum, asked);
        assert_int_equal(h.payloadlen, 5);
        fmtp_receiver_sent(kit.r, 17);
        asked++;
    }
    assert_int_equal(asked, 4000);
    assert_true(most < 65536 + 17);
    /* With k = 1 the inverse of 1 is 1: parity 0 equals the block. */
    kit_parity(0, 5, 0, 1, repair_symbol, 100);
    assert_memory_equal(kit.data + 500, repair_symbol, 100);
    /* All run out of patience at once: again at most the bound, the others later. */
    kit_advance(100 * MS);
    n = fmtp_receiver_output(kit.r, &bytes);
    assert_in_range(n, 65536, 65536 + 17);
    kit_drain();
    for (int i = 0; i < 200; i++) {
        kit_advance(100 * MS);
        kit_drain();
    }
    assert_false(fmtp_receiver_stuck(kit.r));
    assert_int_equal(fmtp_receiver_deadline(kit.r), TP_NEVER);
    assert_int_equal(kit_stats().retx_requests, 3999);
    assert_int_equal(kit_stats().repair_requests, 4000 + 3 * 3999);
    kit_close();
}

/* A product with too many groups is repaired only by RETX_REQ: 65,537 blocks in groups of one. */
static void test_too_many_groups(void **state)
{
    (void)state;
    kit_reset();
    kit.bytes = 65537 * 64;
    kit_open();
    kit_session(true, 64, 1, 0, 1);
    kit_bop(0, 65537 * 64);
    kit_datagram(FMTP_MEM_DATA, 0, 2 * 64, 64, 1);
    kit_expect(FMTP_RETX_REQ, 0, 0, 128);
    kit_bytes(FMTP_PARITY, 0, 1, big_symbol, 64);
    assert_int_equal(kit_stats().bad_messages, 1);
    kit_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passed),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_told_ordinary),
        cmocka_unit_test(test_told_full),
        cmocka_unit_test(test_proactive),
        cmocka_unit_test(test_lost_end),
        cmocka_unit_test(test_parity_passes),
        cmocka_unit_test(test_burst_short),
        cmocka_unit_test(test_answered_by_stream),
        cmocka_unit_test(test_numbers_run_out),
        cmocka_unit_test(test_parity_bound),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_late_block_decodes),
        cmocka_unit_test(test_newer_product),
        cmocka_unit_test(test_short_last_block),
        cmocka_unit_test(test_backlog),
        cmocka_unit_test(test_too_many_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
