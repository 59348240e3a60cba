/* SPDX-License-Identifier: Apache-2.0
 *
 * Receivers that request more than they can have lost, or that lack what the others have, in
 * virtual time: what the others get, and when, must not change. Five products of 4 MB at 100
 * Mbit/s, 10 ms one way, seven honest receivers that lose 1 %. Prints the seconds until the last of
 * them has everything, and the FMTP bytes multicast and those sent to the eighth, divided by the
 * products' bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fec.h"
#include "loop/timers.h"
#include "sim.h"

#define MS UINT64_C(1000000)
enum { HONEST = 7, PRODUCTS = 5, SIZE = 4000000, K = 200, MOST_ATTACKERS = 64 };

/* What the attackers do to one product in each STEP. */
struct attack {
    const char *name;
    void (*on)(struct sim *s, int peer, uint32_t index, unsigned turn);
    int attackers;
    bool ordinary;     /* they do not support extension 1 */
    bool reconnecting; /* each makes a new connection 16 times a second */
    bool one_host;
};

struct result {
    double seconds, multicast, each; /* each: to each attacker */
    struct fmtp_server_stats stats;
};

#define STEP (5 * MS)

static void send_message(struct sim *s, int peer, uint16_t flags, uint32_t index, uint32_t seqnum,
                         uint16_t len, const uint8_t *body, size_t body_len)
{
    struct fmtp_header h = {index, seqnum, len, flags};
    uint8_t bytes[FMTP_HEADER_LEN + FMTP_REPAIR_REQ_MAX];

    fmtp_header_put(bytes, &h);
    if (body_len)
        memcpy(bytes + FMTP_HEADER_LEN, body, body_len);
    fmtp_sender_peer_input(s->sender, peer, bytes, FMTP_HEADER_LEN + body_len, s->now_ns);
}

/* Requests all blocks of all groups by REPAIR_REQ. */
static void ask_everything(struct sim *s, int peer, uint32_t index, unsigned turn)
{
    uint32_t nblocks = fmtp_blocks(SIZE, FMTP_DATA_LEN), groups = fmtp_fec_groups(nblocks, K);
    uint8_t body[FMTP_REPAIR_REQ_MAX], bits[32];

    for (uint32_t g = 0; g < groups; g++) {
        unsigned k = fmtp_fec_group(nblocks, K, g).count;
        memset(bits, 0, sizeof bits);
        for (unsigned i = 0; i < k; i++)
            bits[i / 8] |= (uint8_t)(1u << i % 8);
        struct fmtp_repair_req req = {(uint8_t)(turn % 256), (uint8_t)(turn % 3), (uint16_t)k,
                                      bits};
        size_t len = fmtp_repair_req_put(body, &req, k);
        send_message(s, peer, FMTP_REPAIR_REQ, index, g, (uint16_t)len, body, len);
    }
}

/* Requests a few symbols of each group, different ones each time, and reports a loss of half at the
 * end, as a receiver with high loss might. */
static void ask_modestly(struct sim *s, int peer, uint32_t index, unsigned turn)
{
    uint32_t nblocks = fmtp_blocks(SIZE, FMTP_DATA_LEN), groups = fmtp_fec_groups(nblocks, K);
    uint8_t body[FMTP_REPAIR_REQ_MAX], bits[32] = {0};

    bits[turn % 16] = 0xff;
    for (uint32_t g = turn % 4; g < groups; g += 4) {
        struct fmtp_repair_req req = {(uint8_t)(turn / 4), 0, 8, bits};
        size_t len = fmtp_repair_req_put(body, &req, fmtp_fec_group(nblocks, K, g).count);
        send_message(s, peer, FMTP_REPAIR_REQ, index, g, (uint16_t)len, body, len);
    }
    if (turn % 40 == 39)
        send_message(s, peer, FMTP_RETX_END, index, nblocks / 2, 0, NULL, 0);
}

/* Each attacker requests slightly less than the group bears for one host: a quarter of the blocks,
 * four symbols at a time, of other groups and blocks than the others. */
static struct {
    double debt;
    uint64_t blocks;
} spent[SIM_RECEIVERS];

static void ask_below_the_bound(struct sim *s, int peer, uint32_t index, unsigned turn)
{
    enum { FEW = 4 };
    uint32_t nblocks = fmtp_blocks(SIZE, FMTP_DATA_LEN), groups = fmtp_fec_groups(nblocks, K);
    uint8_t body[FMTP_REPAIR_REQ_MAX], bits[32] = {0};
    struct fmtp_server_stats stats;

    fmtp_sender_get_stats(s->sender, &stats);
    double paid = 0.249 * (double)(stats.blocks - spent[peer].blocks);
    spent[peer].debt = spent[peer].debt > paid ? spent[peer].debt - paid : 0;
    spent[peer].blocks = stats.blocks;
    if (spent[peer].debt > 0 || index + 1 < (uint32_t)s->offered)
        return;
    spent[peer].debt = FEW;
    uint32_t g = (turn + (unsigned)peer * 5) % groups;
    bits[(turn / groups + (unsigned)peer) % 24] = 0x0f;
    struct fmtp_repair_req req = {0, 2, FEW, bits};
    size_t len = fmtp_repair_req_put(body, &req, fmtp_fec_group(nblocks, K, g).count);
    send_message(s, peer, FMTP_REPAIR_REQ, index, g, (uint16_t)len, body, len);
}

/* Requests eight symbols of each group of a product that is not yet multicast. */
static void ask_ahead(struct sim *s, int peer, uint32_t index, unsigned turn)
{
    uint32_t nblocks = fmtp_blocks(SIZE, FMTP_DATA_LEN), groups = fmtp_fec_groups(nblocks, K);
    uint8_t body[FMTP_REPAIR_REQ_MAX], bits[32] = {0xff};
    struct fmtp_server_stats stats;

    (void)turn;
    fmtp_sender_get_stats(s->sender, &stats);
    for (uint32_t g = 0; g < groups; g++) {
        struct fmtp_fec_group at = fmtp_fec_group(nblocks, K, g);
        struct fmtp_repair_req req = {0, 2, 8, bits};
        size_t len = fmtp_repair_req_put(body, &req, at.count);
        if (stats.blocks < (uint64_t)index * nblocks + at.first)
            send_message(s, peer, FMTP_REPAIR_REQ, index, g, (uint16_t)len, body, len);
    }
}

/* Requests everything by RETX_REQ, 64 kB for 12 bytes, and the BOP. */
static void ask_by_stream(struct sim *s, int peer, uint32_t index, unsigned turn)
{
    (void)turn;
    for (uint32_t at = 0; at < SIZE; at += 65000)
        send_message(s, peer, FMTP_RETX_REQ, index, at, 65000, NULL, 0);
    for (int i = 0; i < 50; i++)
        send_message(s, peer, FMTP_BOP_REQ, index, 0, 0, NULL, 0);
}

static void be_silent(struct sim *s, int peer, uint32_t index, unsigned turn)
{
    (void)s;
    (void)peer;
    (void)index;
    (void)turn;
}

/* The attacker reads everything as fast as it arrives. */
static uint64_t read_all(struct sim *s, int peer)
{
    static struct fmtp_stream_out out;
    uint64_t bytes = 0;

    while (fmtp_sender_peer_pending(s->sender, peer)) {
        fmtp_sender_peer_peek(s->sender, peer, &out, s->now_ns);
        if (!out.len)
            break;
        fmtp_sender_peer_sent(s->sender, peer, out.len, s->now_ns);
        bytes += out.len;
    }
    return bytes;
}

static bool honest_are_done(const struct sim *s)
{
    for (int i = 0; i < s->nrx; i++)
        for (int p = 0; p < PRODUCTS; p++)
            if (!s->rx[i].ended[p])
                return false;
    return true;
}

static int attacker(struct sim *s, const struct attack *a, int number)
{
    uint64_t host = a->one_host ? 1000000 : 1000000 + (uint64_t)number;
    int peer = fmtp_sender_peer_add_from(s->sender, host, !a->ordinary, NULL);

    assert_true(peer >= 0);
    fmtp_sender_peer_rtt(s->sender, peer, 20 * MS);
    return peer;
}

static struct result run(const struct attack *a)
{
    struct sim_config cfg = {.layout = FMTP_LAYOUT_2021,
                             .rate_bps = 100000000,
                             .unicast_bps = 100000000,
                             .delay_ns = 10 * MS,
                             .overhead_bytes = 42,
                             .f_snd = 5000,
                             .f_rcv = 20,
                             .loss = 0.01,
                             .receivers = HONEST,
                             .fec_k = K,
                             .reorder_blocks = 1024,
                             .quiet = true,
                             .seed = 7,
                             .products = PRODUCTS};
    int peers[MOST_ATTACKERS];
    uint64_t attacked = 0;
    unsigned turn = 0;

    memset(spent, 0, sizeof spent);
    struct sim *s = sim_new(&cfg);
    for (int i = 0; i < PRODUCTS; i++)
        sim_product(s, SIZE, 0);
    for (int i = 0; i < a->attackers; i++)
        peers[i] = attacker(s, a, i);
    for (; !honest_are_done(s) && s->now_ns < 60000 * MS; turn++) {
        sim_run(s, s->now_ns + (a->on == ask_below_the_bound ? MS : STEP));
        for (int i = 0; i < a->attackers; i++) {
            if (a->reconnecting && (turn + (unsigned)i) % 12 == 11) {
                fmtp_sender_peer_remove(s->sender, peers[i]);
                peers[i] = attacker(s, a, i);
            }
            for (int p = 0; p < s->offered; p++)
                if (!s->released[p])
                    a->on(s, peers[i], (uint32_t)p, turn);
            attacked += read_all(s, peers[i]);
        }
    }
    assert_true(honest_are_done(s));
    struct result r = {.multicast = (double)s->datagram_bytes / ((double)SIZE * PRODUCTS)};
    for (int i = 0; i < HONEST; i++)
        for (int p = 0; p < PRODUCTS; p++) {
            assert_true(s->rx[i].intact[p]);
            if ((double)s->rx[i].ended_ns[p] / 1e9 > r.seconds)
                r.seconds = (double)s->rx[i].ended_ns[p] / 1e9;
        }
    if (a->attackers)
        r.each = (double)attacked / a->attackers / ((double)SIZE * PRODUCTS);
    fmtp_sender_get_stats(s->sender, &r.stats);
    for (int i = 0; i < a->attackers; i++)
        fmtp_sender_peer_remove(s->sender, peers[i]);
    sim_free(s);
    print_message("%-38s %8.3f %9.4f %9.4f %8llu %8llu\n", a->name, r.seconds, r.multicast, r.each,
                  (unsigned long long)r.stats.parity_sent,
                  (unsigned long long)r.stats.repairs_sent);
    return r;
}

/* The same seed gives the same figures, so one run is enough. */
static struct result unharmed(void)
{
    static const struct attack nobody = {.name = "nobody", .on = be_silent};
    static struct result found;
    static bool is_known;

    if (!is_known)
        found = run(&nobody);
    is_known = true;
    return found;
}

static void head(void)
{
    print_message("%-38s %8s %9s %9s %8s %8s\n", "attack", "seconds", "multicast", "to each",
                  "parity", "repairs");
}

static void test_repair_floods(void **state)
{
    static const struct attack attacks[] = {
        {"one asks for everything", ask_everything, 1, false, false, true},
        {"one asks for everything, reconnects", ask_everything, 1, false, true, true},
        {"16 of one host do", ask_everything, 16, false, true, true},
        {"one asks modestly, and forever", ask_modestly, 1, false, false, true},
        {"16 of one host do", ask_modestly, 16, false, true, true},
    };

    (void)state;
    head();
    struct result before = unharmed();
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        struct result r = run(&attacks[i]);
        assert_true(r.seconds < before.seconds * 1.1);
        assert_true(r.multicast < before.multicast * 1.1);
        if (!attacks[i].reconnecting)
            assert_true(r.each < 2.1);
    }
}

/* `make test` tries the smallest and the largest number of hosts, `make test-all` also those
 * between. */
static bool many_numbers(void)
{
    return getenv("DOWNPOUR_TEST_LONG") != NULL;
}

/* However many hosts request, honest receivers finish within 10 % of their time without
 * attackers. */
static void test_many_hosts(void **state)
{
    static const struct attack
        everything =
            {"1, 4, 16, 64 hosts ask for everything", ask_everything, 1, false, true, false},
        modestly = {"1, 4, 16, 64 hosts ask modestly", ask_modestly, 1, false, true, false};

    (void)state;
    head();
    struct result before = unharmed();
    for (int hosts = 1; hosts <= MOST_ATTACKERS; hosts *= many_numbers() ? 4 : 64)
        for (int i = 0; i < 2; i++) {
            struct attack a = i ? modestly : everything;
            a.attackers = hosts;
            assert_true(run(&a).seconds < before.seconds * 1.1);
        }
}

/* Hosts that each stay below the limit of one host must not together exceed the limit of all. */
static void test_hosts_below_the_bound(void **state)
{
    static const struct attack each = {
        "1, 2, 4, 16, 64 hosts below the bound", ask_below_the_bound, 1, false, false, false};
    static const int hosts[] = {1, 2, 4, 16, 64};

    (void)state;
    head();
    struct result before = unharmed();
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i += many_numbers() ? 1 : 4) {
        struct attack a = each;
        a.attackers = hosts[i];
        struct result r = run(&a);
        assert_true(r.seconds < before.seconds * 1.1);
        assert_true(r.multicast < before.multicast * 1.12);
    }
}

/* Repairs of groups that are still to come would tell the other receivers that these are over. */
static void test_asking_ahead(void **state)
{
    static const struct attack ahead = {
        "one asks for what is still to come", ask_ahead, 1, false, false, true};

    (void)state;
    head();
    struct result before = unharmed(), r = run(&ahead);
    assert_true(r.seconds < before.seconds * 1.02);
    assert_true(r.stats.repairs_sent < 2 * before.stats.repairs_sent);
}

/* Attackers without the extension: the others' repairs stay multicast. */
static void test_ordinary_ones(void **state)
{
    static const struct attack
        silent = {"one without extension, silent", be_silent, 1, true, false, true},
        many = {"16 without extension, silent", be_silent, 16, true, true, true};

    (void)state;
    head();
    struct result before = unharmed(), r = run(&silent);
    assert_true(r.stats.parity_sent + r.stats.repairs_sent > 0);
    assert_int_equal(r.stats.retx_blocks, before.stats.retx_blocks);
    assert_true(r.seconds < before.seconds * 1.02);
    assert_true(r.multicast < before.multicast * 1.02);
    r = run(&many);
    assert_true(r.seconds < before.seconds * 1.02);
}

static void test_stream_flood(void **state)
{
    static const struct attack stream = {
        "one asks for all by stream", ask_by_stream, 1, false, false, true};

    (void)state;
    head();
    struct result before = unharmed(), r = run(&stream);
    assert_true(r.seconds < before.seconds * 1.02);
    assert_true(r.each < 2.1); /* each block at most twice, however often it is requested */
    assert_true(r.stats.excess > 1000);
}

/* ---- an honest receiver with such a loss: it gets everything by its stream, the others do not
 * wait */
static bool last_loses_half(int receiver, const struct fmtp_header *h)
{
    static uint32_t x = 1;

    (void)h;
    x = x * 1664525 + 1013904223;
    return receiver == HONEST && x >> 31;
}

static void test_a_bad_path(void **state)
{
    struct sim_config cfg = {.layout = FMTP_LAYOUT_2021,
                             .rate_bps = 100000000,
                             .unicast_bps = 100000000,
                             .delay_ns = 10 * MS,
                             .overhead_bytes = 42,
                             .f_snd = 5000,
                             .f_rcv = 20,
                             .loss = 0.01,
                             .receivers = HONEST + 1,
                             .fec_k = K,
                             .reorder_blocks = 1024,
                             .quiet = true,
                             .seed = 7,
                             .products = PRODUCTS,
                             .drop = last_loses_half};
    struct sim *s = sim_new(&cfg);

    (void)state;
    for (int i = 0; i < PRODUCTS; i++)
        sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    double others = 0, bad = 0;
    for (int i = 0; i <= HONEST; i++)
        for (int p = 0; p < PRODUCTS; p++) {
            assert_int_equal(s->rx[i].ended[p], 1);
            assert_true(s->rx[i].intact[p]);
            double at = (double)s->rx[i].ended_ns[p] / 1e9;
            double *last = i < HONEST ? &others : &bad;
            *last = at > *last ? at : *last;
        }
    double multicast = (double)s->datagram_bytes / ((double)SIZE * PRODUCTS);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s->sender, &stats);
    print_message("one loses 50 %%: the others have all at %.3f s, it at %.3f s; multicast %.4f, "
                  "blocks by stream %llu\n",
                  others, bad, multicast, (unsigned long long)stats.retx_blocks);
    head();
    struct result before = unharmed();
    assert_true(others < before.seconds * 1.2);
    assert_true(multicast < before.multicast * 1.2);
    assert_true(stats.retx_blocks > 0);
    sim_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair_floods),
        cmocka_unit_test(test_many_hosts),
        cmocka_unit_test(test_hosts_below_the_bound),
        cmocka_unit_test(test_asking_ahead),
        cmocka_unit_test(test_ordinary_ones),
        cmocka_unit_test(test_stream_flood),
        cmocka_unit_test(test_a_bad_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
