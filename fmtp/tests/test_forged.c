/* SPDX-License-Identifier: Apache-2.0
 *
 * Forged datagrams at MAC level 0: each loses at most the product that it names, for every kind of
 * session, index, order and size. FMTP_SEEDS=N runs N seeds (default 60, with DOWNPOUR_TEST_LONG
 * 400), FMTP_SEED=N only that one.
 */
#include <stdlib.h>
#include <string.h>

#include "receiver_kit.h"
#include "seeds.h"
#include "sim.h"

enum { PRODUCTS = 30, SLOTS = 64, SEEDS = 60, MANY_SEEDS = 400 };

/* ------------------------------------------------------------------ the four of an attacker */

struct kind {
    const char *name;
    enum fmtp_layout layout;
    uint16_t fec_k;
    bool original;
};

static const struct kind kinds[] = {
    {"multicast repair", FMTP_LAYOUT_2021, 20, false},
    {"unicast repair", FMTP_LAYOUT_2021, 0, false},
    {"an original sender", FMTP_LAYOUT_2021, 0, true},
    {"layout 2017", FMTP_LAYOUT_2017, 0, false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct sim_config settings(const struct kind *k)
{
    return (struct sim_config){.layout = k->layout,
                               .rate_bps = 20000000,
                               .unicast_bps = 20000000,
                               .delay_ns = 10 * MS,
                               .f_snd = 5000,
                               .f_rcv = 20,
                               .receivers = 1,
                               .fec_k = k->fec_k,
                               .original = k->original,
                               .products = SLOTS,
                               .max_products = 4096,
                               .reorder_blocks = k->fec_k ? 64 : 0,
                               .forged = true,
                               .quiet = true};
}

/* Sends 10 products, runs attack(), sends 20 products; returns how many arrived intact. */
static int under_attack(const struct kind *k, uint32_t first, void (*attack)(struct sim *s))
{
    struct sim_config cfg = settings(k);
    int intact = 0;

    cfg.first_index = first;
    struct sim *s = sim_new(&cfg);
    for (int p = 0; p < PRODUCTS; p++)
        sim_product(s, 20000, (p < 10 ? 0 : 1000 * MS) + (uint64_t)p * 20 * MS);
    sim_run(s, 900 * MS);
    attack(s);
    sim_run(s, TP_NEVER);
    for (int p = 0; p < PRODUCTS; p++) {
        intact += s->rx[0].ended[p] == 1 && s->rx[0].intact[p];
        assert_int_equal(s->released[p], 1);
    }
    assert_true(s->released_ns[PRODUCTS - 1] < 10000 * MS);
    sim_free(s);
    return intact;
}

static uint32_t next_index(const struct sim *s)
{
    return s->cfg.first_index + (uint32_t)s->offered;
}

static void forge(struct sim *s, uint16_t flags, uint32_t index, uint32_t seqnum, uint16_t len)
{
    uint8_t payload[2048];

    memset(payload, 0xee, sizeof payload);
    sim_forge(s, 0, &(struct fmtp_header){index, seqnum, len, flags}, payload);
}

static void eop_next(struct sim *s)
{
    forge(s, FMTP_EOP, next_index(s), 0, 0);
}

static void eop_jump(struct sim *s)
{
    forge(s, FMTP_EOP, next_index(s) + 4000, 0, 0);
}

static void eop_near(struct sim *s)
{
    forge(s, FMTP_EOP, next_index(s) + 40, 0, 0);
}

static void data_far(struct sim *s)
{
    for (uint32_t i = 0; i < 40; i++)
        forge(s, FMTP_MEM_DATA, next_index(s) + 60000, i * FMTP_DATA_LEN, FMTP_DATA_LEN);
}

static void data_wrapped(struct sim *s)
{
    for (uint32_t i = 0; i < 40; i++)
        forge(s, FMTP_MEM_DATA, next_index(s) + INT32_MAX - 5 + i, 0, FMTP_DATA_LEN);
}

static void bop_next(struct sim *s)
{
    sim_forge_bop(s, 0, next_index(s), 19000000);
}

static void bops(struct sim *s)
{
    for (uint32_t i = 0; i < 30; i++)
        sim_forge_bop(s, 0, next_index(s) + 30 + i, i);
}

/* An empty product ends with its BOP. */
static void empty_far(struct sim *s)
{
    sim_forge_bop(s, 0, next_index(s) + 64, 0);
    sim_forge_bop(s, 0, next_index(s) + 63, 0);
    sim_forge_bop(s, 0, next_index(s) + 65, 0);
}

static const struct {
    const char *name;
    void (*run)(struct sim *s);
    int named; /* products of the sender that they name */
} attacks[] = {
    {"EOP of the next index", eop_next, 1},
    {"EOP 40 ahead", eop_near, 0},
    {"EOP 4,000 ahead", eop_jump, 0},
    {"40 blocks 60,000 ahead", data_far, 0},
    {"40 blocks half of the indices ahead", data_wrapped, 0},
    {"BOP of 19 MB of the next index", bop_next, 1},
    {"30 BOPs ahead", bops, 0},
    {"three empty products ahead", empty_far, 0},
};

static void test_attacks(void **state)
{
    static const uint32_t first[] = {0, UINT32_MAX - 12, INT32_MAX - 12};

    (void)state;
    for (size_t a = 0; a < sizeof attacks / sizeof *attacks; a++)
        for (size_t k = 0; k < KINDS; k++)
            for (size_t f = 0; f < 3; f++) {
                int intact = under_attack(&kinds[k], first[f], attacks[a].run);
                if (f == 0)
                    print_message("%s, %s: %d of %d\n", attacks[a].name, kinds[k].name, intact,
                                  PRODUCTS);
                if (intact < PRODUCTS - attacks[a].named)
                    fail_msg("%s, %s, from index %u: %d of %d arrived", attacks[a].name,
                             kinds[k].name, first[f], intact, PRODUCTS);
            }
}

/* ------------------------------------------------------------------ any */

static bool named[SLOTS];
static unsigned wrong; /* over all seeds */

/* A separate draw per statement: the order in which arguments are evaluated depends on the
 * machine. */
static uint32_t any_parity(struct sim *s)
{
    uint16_t group = (uint16_t)sim_random(s, 3);
    uint8_t number = (uint8_t)sim_random(s, 3);

    return fmtp_parity_seqnum((struct fmtp_parity){group, number, 3});
}

static void forge_any(struct sim *s)
{
    static const uint32_t offsets[] = {0,
                                       0,
                                       1,
                                       1,
                                       2,
                                       5,
                                       62,
                                       63,
                                       64,
                                       65,
                                       100,
                                       4000,
                                       4096,
                                       60000,
                                       INT32_MAX - 1u,
                                       1u << 31,
                                       UINT32_MAX,
                                       UINT32_MAX - 4,
                                       UINT32_MAX - 4096};
    static const uint16_t flags[] = {FMTP_BOP,      FMTP_BOP,      FMTP_EOP,      FMTP_MEM_DATA,
                                     FMTP_MEM_DATA, FMTP_RETX_END, FMTP_RETX_REJ, FMTP_PARITY,
                                     FMTP_REPAIR,   FMTP_RETX_EOP, FMTP_NOT_YET};
    uint32_t index = next_index(s) + offsets[sim_random(s, sizeof offsets / sizeof *offsets)];
    uint32_t burst = sim_random(s, 3) ? 1 : 1 + sim_random(s, 80);
    bool counting = sim_random(s, 2);

    for (uint32_t i = 0; i < burst; i++) {
        uint16_t flag = flags[sim_random(s, sizeof flags / sizeof *flags)];
        uint32_t at = index + (counting ? i : 0);
        if (at - s->cfg.first_index < SLOTS)
            named[at - s->cfg.first_index] = true;
        if (flag == FMTP_BOP)
            sim_forge_bop(s, 0, at, sim_random(s, 4) ? sim_random(s, 100000) : 0);
        else if (flag == FMTP_MEM_DATA || flag == FMTP_REPAIR)
            forge(s, flag, at, sim_random(s, 60) * FMTP_DATA_LEN, FMTP_DATA_LEN);
        else if (flag == FMTP_PARITY)
            forge(s, flag, at, any_parity(s), FMTP_DATA_LEN);
        else
            forge(s, flag, at, 0, 0);
    }
}

static void one(uint32_t seed)
{
    static const uint32_t first[] = {0, 7, UINT32_MAX - 15, INT32_MAX - 10, 100000};
    const struct kind *k = &kinds[seed % KINDS];
    struct sim_config cfg = settings(k);

    cfg.seed = seed;
    cfg.f_snd = 1e7; /* with 5000, the sender releases products of a few bytes after 40 ms */
    cfg.first_index = first[seed / KINDS % 5];
    cfg.loss = seed % 3 == 0 ? 0.05 : 0;
    cfg.announced_bytes = seed % 2 ? 1 << 20 : 0;
    struct sim *s = sim_new(&cfg);
    memset(named, 0, sizeof named);
    for (int p = 0; p < PRODUCTS; p++) {
        uint32_t size = sim_random(s, 5) ? sim_random(s, 40000) : sim_random(s, 2000);
        uint64_t at_ms = 100 + (uint64_t)p * (1 + sim_random(s, 60));
        sim_product(s, size, at_ms * MS);
    }
    for (int n = 0; n < 40; n++) {
        sim_run(s, s->now_ns + sim_random(s, 60) * MS);
        forge_any(s);
    }
    sim_run(s, TP_NEVER);
    for (int p = 0; p < PRODUCTS; p++) {
        const struct sim_receiver *rx = &s->rx[0];
        if (s->released[p] != 1)
            print_error("seed %u: product %d was released %d times\n", seed, p, s->released[p]);
        else if (!named[p] && (rx->ended[p] != 1 || !rx->intact[p] || rx->missed[p]))
            print_error("seed %u, %s: product %d, which no forged datagram named: begun %d, ended "
                        "%d (%s), missed %d\n",
                        seed, k->name, p, rx->begun[p], rx->ended[p],
                        rx->intact[p] ? "intact" : "damaged", rx->missed[p]);
        else
            continue;
        wrong++;
    }
    sim_free(s);
}

static void test_seeds(void **state)
{
    struct seeds seeds = seeds_of(SEEDS, MANY_SEEDS);

    (void)state;
    for (uint32_t seed = seeds.first; seed < seeds.end; seed++)
        one(seed);
    print_message("%u seeds\n", seeds.end - seeds.first);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attacks),
                                       cmocka_unit_test(test_seeds)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
