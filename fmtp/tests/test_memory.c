/* SPDX-License-Identifier: Apache-2.0
 *
 * Each allocation of the cores fails once: what cannot be made is NULL or -1, nothing leaks (the
 * sanitizer checks), and an existing core continues.
 */
#include <string.h>

#include "failing_memory.h"
#include "fec.h"
#include "groups.h"
#include "keyx.h"
#include "mac.h"
#include "outbox.h"
#include "receiver_kit.h"
#include "reorder.h"
#include "requests.h"
#include "sender.h"

/* Calls make() with its first, second, ... allocation failing, until no further one can fail. */
#define EACH_ALLOCATION_FAILS(least, make, unmake) \
    do {                                           \
        unsigned n = 1;                            \
        for (;; n++) {                             \
            memory_fails_at(n);                    \
            bool is_made = (make);                 \
            if (!memory_failed()) {                \
                assert_true(is_made);              \
                unmake;                            \
                break;                             \
            }                                      \
            assert_false(is_made);                 \
        }                                          \
        assert_true(n > (least));                  \
    } while (0)

static void cores_and_keys(void **state)
{
    (void)state;
    struct fmtp_sender_config send = {.layout = FMTP_LAYOUT_2021,
                                      .block_bytes = 100,
                                      .fec_k = 10,
                                      .f_snd = 10,
                                      .r_mc_bps = 1000000,
                                      .max_products = 4,
                                      .max_peers = 4,
                                      .peer_queue_bytes = 4096};
    struct fmtp_sender *s;
    EACH_ALLOCATION_FAILS(3, (s = fmtp_sender_new(&send)), fmtp_sender_free(s));
    kit_reset();
    struct fmtp_receiver *r;
    EACH_ALLOCATION_FAILS(3, (r = fmtp_receiver_new(&kit.cfg)), fmtp_receiver_free(r));
    struct fmtp_keyx *k;
    EACH_ALLOCATION_FAILS(1, (k = fmtp_keyx_new_sender()), fmtp_keyx_free(k));
    for (unsigned level = 0; level <= 2; level++) {
        struct fmtp_mac *m;
        EACH_ALLOCATION_FAILS(1, (m = fmtp_mac_new_signer(level)), fmtp_mac_free(m));
    }
}

static void parts_of_a_core(void **state)
{
    (void)state;
    struct fmtp_reorder reorder;
    EACH_ALLOCATION_FAILS(1, fmtp_reorder_init(&reorder, 4, 100) == 0, fmtp_reorder_free(&reorder));
    struct fmtp_symbols symbols;
    EACH_ALLOCATION_FAILS(1, fmtp_symbols_init(&symbols, 100, 1000) == 0,
                          fmtp_symbols_free(&symbols));
    struct fmtp_groups *groups;
    EACH_ALLOCATION_FAILS(1, (groups = fmtp_groups_new(30, 10)),
                          fmtp_groups_free(groups, &symbols));
    struct fmtp_outbox box;
    fmtp_outbox_init(&box, 1000);
    EACH_ALLOCATION_FAILS(1, fmtp_outbox_put(&box, "ab", 2, "cde", 3) == 0, (void)0);
    assert_int_equal(box.len, 5); /* the failed call left nothing behind */
    fmtp_outbox_free(&box);
    struct fmtp_requests queue;
    fmtp_requests_init(&queue, 4096);
    struct fmtp_request one = {.index = 1, .flags = FMTP_RETX_BOP};
    EACH_ALLOCATION_FAILS(1, fmtp_requests_push(&queue, &one, 0, NULL) == 0, (void)0);
    assert_int_equal(queue.count, 1);
    fmtp_requests_free(&queue);
}

static void on_released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    (void)index;
    (void)cookie;
    (void)why;
    ++*(int *)ctx;
}

/* An offer or a peer without memory is refused; the next one is accepted. */
static void sender_goes_on(void **state)
{
    (void)state;
    int released = 0;
    struct fmtp_sender_config cfg = {.layout = FMTP_LAYOUT_2021,
                                     .block_bytes = 100,
                                     .fec_k = 10,
                                     .f_snd = 10,
                                     .r_mc_bps = 1000000,
                                     .max_products = 4,
                                     .max_peers = 4,
                                     .peer_queue_bytes = 4096,
                                     .ctx = &released,
                                     .released = on_released};
    struct fmtp_sender *s = fmtp_sender_new(&cfg);
    assert_non_null(s);
    int peer;
    EACH_ALLOCATION_FAILS(1, (peer = fmtp_sender_peer_add(s, true, NULL)) >= 0, (void)0);
    static char data[3000];
    struct iovec part = {data, sizeof data};
    uint32_t index = 99;
    struct tp_error err;
    EACH_ALLOCATION_FAILS(
        2,
        fmtp_sender_offer(
            s, &(struct fmtp_offer){.parts = &part, .nparts = 1, .meta = "p", .meta_len = 1},
            &index, &err) == 0,
        (void)0);
    assert_int_equal(index, 0); /* failed offers used no index */
    fmtp_sender_free(s);
    assert_int_equal(released, 1);
}

static const uint8_t *zeros(void)
{
    static const uint8_t block[100];

    return block;
}

/* Product 1 before its BOP; product 0 with a lost block that parity restores. */
static void receive_two(void)
{
    kit_bytes(FMTP_MEM_DATA, 1, 0, zeros(), 100);
    kit_bop(0, 1000);
    for (uint32_t i = 0; i < 9; i++)
        kit_bytes(FMTP_MEM_DATA, 0, 100 * i, zeros(), 100);
    kit_parity(0, 0, 0, 1, zeros(), 100);
    kit_bop(1, 100);
}

/* A product without memory is missed, once; later ones are received. */
static void receiver_goes_on(void **state)
{
    (void)state;
    unsigned n = 1;
    for (bool failed = true; failed; n++) {
        kit_open_extended(10, 0);
        memory_fails_at(n);
        receive_two();
        failed = memory_failed();
        if (!failed)
            assert_int_equal(kit.nended, 2);
        receive_two(); /* again, with memory: each arrival counts once */
        kit_datagram(FMTP_MEM_DATA, 0, 900, 100, 0);
        kit_datagram(FMTP_MEM_DATA, 1, 0, 100, 0);
        assert_int_equal(kit.nended + kit.nmissed, 2);
        kit_bop(2, 100);
        kit_datagram(FMTP_MEM_DATA, 2, 0, 100, 0);
        assert_int_equal(kit.ended[kit.nended - 1], 2);
        kit_drain();
        kit_close();
        assert_int_equal(kit.nended + kit.nmissed, 3);
    }
    assert_true(n > 5);
}

static void decoding_fails_whole(void **state)
{
    (void)state;
    uint8_t out[100];
    memset(out, 7, sizeof out);
    const uint8_t *blocks[2] = {NULL, zeros()}, *parity[1] = {zeros()};
    uint8_t missing = 0, number = 0, *outs[1] = {out};
    memory_fails_at(1);
    assert_int_equal(fmtp_fec_decode(2, 100, blocks, 1, &missing, &number, parity, outs), -1);
    assert_true(memory_failed());
    assert_int_equal(out[0], 7); /* nothing was written */
    assert_int_equal(fmtp_fec_decode(2, 100, blocks, 1, &missing, &number, parity, outs), 0);
    assert_int_equal(out[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_and_keys),       cmocka_unit_test(parts_of_a_core),
        cmocka_unit_test(sender_goes_on),       cmocka_unit_test(receiver_goes_on),
        cmocka_unit_test(decoding_fails_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
