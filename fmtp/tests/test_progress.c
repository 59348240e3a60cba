/* SPDX-License-Identifier: Apache-2.0
 *
 * Receivers that read more slowly than the sender could multicast, and report what they read.
 */
#include "sender_kit.h"
#include "sim.h"

enum { SIZE = 40000000, BUFFER = 8 << 20 };

/* 1 Gbit/s to receivers that read 200 Mbit/s. */
static const struct sim_config slow = {.layout = FMTP_LAYOUT_2021,
                                       .rate_bps = 1000000000,
                                       .unicast_bps = 1000000000,
                                       .delay_ns = MS / 10,
                                       .overhead_bytes = 42,
                                       .f_snd = 5000,
                                       .f_rcv = 20,
                                       .receivers = 4,
                                       .fec_k = 200,
                                       .block_bytes = 1448,
                                       .reorder_blocks = 1024,
                                       .peer_queue_bytes = 4 << 20,
                                       .buffer_bytes = BUFFER,
                                       .reads_bps = 200000000,
                                       .progress = true,
                                       .seed = 1,
                                       .products = 3};

/* 40 MB with headers, 12 bytes of 1460, take 1.613 s to read. */
#define READ_NS (1614 * MS)

static struct sim *run(const struct sim_config *cfg)
{
    struct sim *s = sim_new(cfg);

    sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    for (int i = 0; i < s->nrx; i++)
        assert_int_equal(s->rx[i].ended[0], 1);
    return s;
}

static uint64_t overflows(const struct sim *s)
{
    uint64_t n = 0;

    for (int i = 0; i < s->nrx; i++)
        n += s->rx[i].overflows;
    return n;
}

/* Their buffers never overflow, and they never wait for the sender. */
static void test_nothing_overflows(void **state)
{
    struct sim *s = run(&slow);

    (void)state;
    assert_int_equal(overflows(s), 0);
    for (int i = 0; i < s->nrx; i++)
        assert_in_range(s->rx[i].ended_ns[0], READ_NS - 2 * MS, READ_NS + 5 * MS);
    /* Reports are few: the first, then one for each 32nd of the buffer. */
    assert_in_range(sim_count(&s->rx[0], FMTP_PROGRESS, 0), 2, 20 + SIZE / (BUFFER / 32));
    sim_free(s);
}

/* The same without reports: what the test above is about does happen. */
static void test_without_reports(void **state)
{
    struct sim_config cfg = slow;

    (void)state;
    cfg.progress = false;
    struct sim *s = run(&cfg);
    /* Of 332 ms of multicast each reads 332 / 5 and holds 8.4 MB: 22.6 MB are lost at each. */
    assert_in_range(overflows(s), 4 * 22000000ull / 1460, 4 * 24000000ull / 1460);
    sim_free(s);
}

/* A pause that the buffer bridges costs no datagram, and only the time of the pause. */
static void test_short_pause(void **state)
{
    struct sim_config cfg = slow;

    (void)state;
    cfg.pause_ns = 300 * MS;
    cfg.pause_end_ns = 450 * MS;
    struct sim *s = run(&cfg);
    assert_int_equal(overflows(s), 0);
    assert_in_range(s->rx[0].ended_ns[0], READ_NS + 140 * MS, READ_NS + 160 * MS);
    sim_free(s);
}

/* For one that stops, the others wait for 0.2 s and no longer. */
static void test_one_that_stops(void **state)
{
    struct sim_config cfg = slow;

    (void)state;
    cfg.pause_ns = 300 * MS;
    cfg.pause_end_ns = 5000 * MS;
    struct sim *s = run(&cfg);
    for (int i = 1; i < s->nrx; i++)
        assert_in_range(s->rx[i].ended_ns[0], READ_NS, READ_NS + 230 * MS);
    assert_int_equal(overflows(s), s->rx[0].overflows);
    assert_true(s->rx[0].overflows > SIZE / 1448 / 2);
    sim_free(s);
}

/* For one that reads a quarter of the rate, the others wait 0.2 s and an eighth of the time. */
static void test_one_that_is_slow(void **state)
{
    struct sim_config cfg = slow;

    (void)state;
    cfg.first_reads_bps = cfg.reads_bps / 4;
    struct sim *s = run(&cfg);
    for (int i = 1; i < s->nrx; i++)
        assert_in_range(s->rx[i].ended_ns[0], READ_NS, (READ_NS + 200 * MS) * 8 / 7 + 20 * MS);
    assert_int_equal(overflows(s), s->rx[0].overflows);
    sim_free(s);
}

/* A long path, small buffers that are read at once: what is on the way is not in them. */
static void test_long_path(void **state)
{
    struct sim_config cfg = slow;

    (void)state;
    cfg.delay_ns = 100 * MS;
    cfg.buffer_bytes = 1 << 20;
    cfg.reads_bps = 10000000000;
    struct sim *s = run(&cfg);
    /* 27 625 packets of 1502 bytes take 331.9 ms, and 100 ms. */
    assert_int_equal(overflows(s), 0);
    assert_in_range(s->rx[0].ended_ns[0], 431 * MS, 436 * MS);
    sim_free(s);
}

/* A receiver that joins in the middle waits for the next product, and nobody for it. */
static void test_join(void **state)
{
    struct sim *s = sim_new(&slow);

    (void)state;
    sim_product(s, SIZE, 0);
    sim_product(s, SIZE, 0);
    sim_run(s, 500 * MS);
    sim_join(s);
    sim_run(s, TP_NEVER);
    for (int i = 0; i < s->nrx - 1; i++)
        assert_in_range(s->rx[i].ended_ns[1], 2 * READ_NS - 5 * MS, 2 * READ_NS + 10 * MS);
    /* It has no more to read than was multicast since: half a buffer less, of 168 ms. */
    assert_in_range(s->rx[s->nrx - 1].ended_ns[1], 2 * READ_NS - 168 * MS, 2 * READ_NS);
    assert_int_equal(overflows(s), 0);
    sim_free(s);
}

static bool held(struct fmtp_sender *s, uint64_t now_ns)
{
    return fmtp_sender_held_until(s, 0, now_ns) != 0;
}

/* Multicasts until so many blocks have left. */
static void multicast_to(struct fmtp_sender *s, uint64_t blocks)
{
    struct fmtp_header h;
    uint8_t payload[BLOCK];

    while (fmtp_sender_counts(s)->blocks < blocks)
        assert_true(next(s, MS, &h, payload));
}

/* What peers may say. 1,000 blocks of 100 bytes; half of a buffer of 1 unit holds 327 and one that
 * is begun. */
static void test_what_peers_say(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    uint64_t sent, read;
    unsigned extra;

    (void)state;
    fmtp_sender_peer_reports(s, a);
    assert_false(fmtp_sender_progress(s, &sent, &read));
    assert_int_equal(put(s, b, FMTP_PROGRESS, 0, 0, 1), -1); /* it did not agree to it */
    fmtp_sender_peer_remove(s, b);
    assert_true(fmtp_sender_progress(s, &sent, &read));
    offer(s, 30000);
    multicast_to(s, 200);
    assert_false(held(s, MS)); /* its buffer is not known */
    drain(s, MS, &extra);
    assert_int_equal(put(s, a, FMTP_PROGRESS, latest, 0, 1), 0);
    assert_false(held(s, MS)); /* 300 blocks */
    offer(s, 30000);
    multicast_to(s, 327);
    assert_false(held(s, MS));
    multicast_to(s, 328);
    assert_true(held(s, MS));
    /* of a product that there is not, or backwards: nothing */
    assert_int_equal(put(s, a, FMTP_PROGRESS, latest + 5, 0, 1), 0);
    assert_true(held(s, MS));
    assert_int_equal(put(s, a, FMTP_PROGRESS, latest - 1, 100, 1), 0);
    assert_false(held(s, MS));
    multicast_to(s, 329);
    assert_true(held(s, MS));
    assert_int_equal(put(s, a, FMTP_PROGRESS, latest - 1, 0, 1), 0);
    assert_true(held(s, MS));
    /* further than what was multicast: up to that */
    assert_int_equal(put(s, a, FMTP_PROGRESS, latest, UINT32_MAX, 1), 0);
    assert_false(held(s, MS));
    drain(s, MS, &extra);
    assert_false(held(s, MS)); /* 271 blocks since */
    offer(s, 30000);
    drain(s, MS, &extra);
    assert_true(held(s, MS));
    assert_false(held(s, 300 * MS)); /* patience is over */
    fmtp_sender_free(s);
}

struct creepers {
    unsigned number, honest; /* peers; the creepers are of one host */
    unsigned period_ms;      /* between their reports of one more block */
};

static void report(struct fmtp_sender *s, int p, uint32_t index, uint64_t block, uint16_t units,
                   uint64_t now_ns)
{
    struct fmtp_header h = {index, (uint32_t)block * BLOCK, units, FMTP_PROGRESS};
    uint8_t bytes[FMTP_HEADER_LEN];

    fmtp_header_put(bytes, &h);
    assert_int_equal(fmtp_sender_peer_input(s, p, bytes, sizeof bytes, now_ns), 0);
}

/* Multicasts 4 blocks per ms for 1.4 s to peers, some of which report a buffer of one unit and one
 * more block each time. Asks as the server does: after a message, or when it is time to. Returns
 * for how many ms the multicast was held. */
static unsigned held_ms(const struct creepers *c)
{
    struct fmtp_sender_config cfg = common;
    int peers[4];
    uint64_t until_ns = 0, before = 0, said = 0;
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    unsigned held_ms = 0, all = c->number + c->honest;

    cfg.max_products = 32;
    struct fmtp_sender *s = make(&cfg);
    for (unsigned i = 0; i < all; i++) {
        peers[i] = fmtp_sender_peer_add_from(s, i < c->number ? 1 : 2 + i, true, NULL);
        fmtp_sender_peer_reports(s, peers[i]);
    }
    offer(s, 30000);
    uint32_t first = latest;
    for (unsigned ms = 1000; ms < 2400; ms++) {
        uint64_t now_ns = ms * MS, sent = fmtp_sender_counts(s)->blocks;
        bool creeps = ms % c->period_ms == 0, reads = ms % 5 == 0;
        said += creeps && said < sent && said < 300;
        for (unsigned i = 0; i < all; i++)
            if (i < c->number ? creeps : reads)
                report(s, peers[i], i < c->number ? first : latest,
                       i < c->number ? said : sent - before, i < c->number ? 1 : 1000, now_ns);
        if (creeps || reads || now_ns >= until_ns)
            until_ns = fmtp_sender_held_until(s, 0, now_ns);
        held_ms += until_ns != 0;
        for (unsigned n = 0; !until_ns && n < 4; n++)
            if (!next(s, now_ns, &h, payload)) {
                before = fmtp_sender_counts(s)->blocks;
                offer(s, 30000);
            }
    }
    fmtp_sender_free(s);
    return held_ms;
}

/* A receiver that reads a block now and then, on however many connections, costs the others 0.2 s
 * and an eighth of the time, like one that reads nothing. */
static void test_creeping(void **state)
{
    static const unsigned periods_ms[] = {1, 5, 8, 15, 50, 150};

    (void)state;
    for (size_t i = 0; i < sizeof periods_ms / sizeof *periods_ms; i++)
        for (unsigned number = 0; number <= 3; number++) {
            struct creepers c = {number, 4 - number, periods_ms[i]};
            assert_in_range(held_ms(&c), 0, number ? 200 + 1400 / 8 + 20 : 0);
        }
}

/* One that refuses a product, in the middle of it, will report nothing more of it. */
static void test_refusal(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);
    unsigned extra;

    (void)state;
    peer(s, true); /* which does not refuse */
    fmtp_sender_peer_reports(s, a);
    offer(s, 30000);
    multicast_to(s, 10);
    assert_int_equal(put(s, a, FMTP_PROGRESS, latest, 0, 1), 0);
    assert_int_equal(put(s, a, FMTP_RETX_END, latest, FMTP_END_FAILED, 0), 0);
    drain(s, MS, &extra);
    offer(s, 30000);
    multicast_to(s, 600);
    assert_false(held(s, MS));
    fmtp_sender_free(s);
}

/* Read by all is what the slowest has read. */
static void test_the_slowest(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    uint64_t sent, read;

    (void)state;
    fmtp_sender_peer_reports(s, a);
    fmtp_sender_peer_reports(s, b);
    offer(s, 30000);
    multicast_to(s, 200);
    assert_int_equal(put(s, a, FMTP_PROGRESS, latest, 150 * BLOCK, 1), 0);
    assert_int_equal(put(s, b, FMTP_PROGRESS, latest, 60 * BLOCK, 1), 0);
    assert_false(held(s, MS));
    assert_true(fmtp_sender_progress(s, &sent, &read));
    assert_int_equal(sent, 200);
    assert_int_equal(read, 60);
    fmtp_sender_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_overflows),
        cmocka_unit_test(test_without_reports),
        cmocka_unit_test(test_short_pause),
        cmocka_unit_test(test_one_that_stops),
        cmocka_unit_test(test_one_that_is_slow),
        cmocka_unit_test(test_long_path),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_what_peers_say),
        cmocka_unit_test(test_creeping),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_the_slowest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
