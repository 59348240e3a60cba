/* SPDX-License-Identifier: Apache-2.0
 *
 * The batched input: real datagrams over the loopback interface into a receiving core whose
 * application frees a product's memory as soon as the product has ended, in the middle of a batch.
 */
#include <errno.h>
#include <netinet/udp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fec.h"
#include "multicast_in.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum { K = 16, PARITY = 10, BLOCK = 1000, SIZE = K * BLOCK, PDU = FMTP_HEADER_LEN + BLOCK };

static struct {
    struct fmtp_mac *signer, *verifier;
    struct fmtp_receiver *core;
    struct fmtp_multicast_in *in;
    int out_fd;
    uint8_t *memory; /* of the product, until it ends */
    uint8_t got[SIZE];
    int nended, nmissed, nstored;
    bool full; /* the application can store nothing */
} t;
static uint8_t product[SIZE], symbols[PARITY][BLOCK];

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    (void)ctx;
    (void)index;
    (void)meta;
    (void)meta_len;
    (void)start;
    assert_int_equal(size, SIZE);
    assert_null(t.memory);
    t.memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(t.memory, MAP_FAILED);
    return t.memory;
}

static bool store(void *ctx, uint32_t index, uint32_t at, const struct iovec *parts, int nparts)
{
    (void)ctx;
    assert_int_equal(index, 0);
    assert_non_null(t.memory);
    t.nstored++;
    for (int i = 0; !t.full && i < nparts; i++) {
        assert_true(at + parts[i].iov_len <= SIZE);
        memcpy(t.memory + at, parts[i].iov_base, parts[i].iov_len);
        at += (uint32_t)parts[i].iov_len;
    }
    return !t.full;
}

static void take_away(void)
{
    munmap(t.memory, SIZE);
    t.memory = NULL;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    (void)ctx;
    (void)index;
    (void)retx_blocks;
    (void)start;
    memcpy(t.got, t.memory, SIZE);
    take_away();
    t.nended++;
}

static void missed(void *ctx, uint32_t index)
{
    (void)ctx;
    (void)index;
    if (t.memory)
        take_away();
    t.nmissed++;
}

static void open_sockets(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    t.out_fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(fd >= 0 && t.out_fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(connect(t.out_fd, (struct sockaddr *)&at, sizeof at), 0);
    t.in = fmtp_multicast_in_new(fd);
    assert_non_null(t.in);
}

static void set_up(unsigned mac_level, bool stores)
{
    const uint8_t *blocks[K];
    uint8_t *outs[PARITY];
    struct fmtp_receiver_config cfg = {.layout = FMTP_LAYOUT_2021,
                                       .f_rcv = 20,
                                       .r_mc_bps = 1000000,
                                       .max_products = 4,
                                       .parity_bytes = 1 << 20,
                                       .begun = begun,
                                       .store = stores ? store : NULL,
                                       .ended = ended,
                                       .missed = missed};
    struct fmtp_session session = {.extended = true, .block_bytes = BLOCK, .fec_k = K, .id = 1};

    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < sizeof product; i++)
        product[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int i = 0; i < K; i++)
        blocks[i] = product + i * BLOCK;
    for (int i = 0; i < PARITY; i++)
        outs[i] = symbols[i];
    fmtp_fec_encode(K, 0, PARITY, BLOCK, blocks, outs);
    size_t len;
    t.signer = fmtp_mac_new_signer(mac_level);
    assert_non_null(t.signer);
    const uint8_t *key = fmtp_mac_key(t.signer, &len);
    t.verifier = fmtp_mac_new_verifier(key, len);
    t.core = fmtp_receiver_new(&cfg);
    assert_non_null(t.verifier);
    assert_non_null(t.core);
    assert_int_equal(fmtp_receiver_session(t.core, &session, 0), 0);
    open_sockets();
    fmtp_multicast_in_set_store(t.in, cfg.store, NULL);
    fmtp_multicast_in_set_mac(t.in, t.verifier);
}

static void tear_down(void)
{
    fmtp_receiver_free(t.core);
    fmtp_multicast_in_close(t.in);
    fmtp_mac_free(t.signer);
    fmtp_mac_free(t.verifier);
    close(t.out_fd);
    assert_null(t.memory);
}

/* Writes a datagram with its MAC to out; returns its length. */
static size_t sealed(uint8_t *out, struct fmtp_header h, const uint8_t *payload)
{
    struct iovec all = {out, FMTP_HEADER_LEN + h.payloadlen};

    fmtp_header_put(out, &h);
    memcpy(out + FMTP_HEADER_LEN, payload, h.payloadlen);
    assert_int_equal(fmtp_mac_sign(t.signer, &all, 1, out + all.iov_len), 0);
    return all.iov_len + fmtp_mac_len(t.signer);
}

/* Sends n datagrams of seg bytes each: as one message that the kernel splits, or one by one. */
static void send_all(const uint8_t *bytes, size_t seg, unsigned n, bool gso)
{
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct iovec all = {(void *)bytes, seg * n};
    struct msghdr m = {
        .msg_iov = &all, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};

    for (unsigned i = 0; !gso && i < n; i++)
        assert_int_equal(send(t.out_fd, bytes + i * seg, seg, 0), seg);
    if (!gso)
        return;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    memcpy(CMSG_DATA(c), &(uint16_t){(uint16_t)seg}, sizeof(uint16_t));
    assert_int_equal(sendmsg(t.out_fd, &m, 0), seg * n);
}

static void send_bop(void)
{
    uint8_t body[32], bytes[PDU + FMTP_MAC_MAX];
    struct fmtp_bop bop = {.size_bytes = SIZE};
    uint16_t len = (uint16_t)fmtp_bop_put(FMTP_LAYOUT_2021, body, &bop);

    send_all(bytes, sealed(bytes, (struct fmtp_header){0, 0, len, FMTP_BOP}, body), 1, false);
}

static void send_parity(bool gso)
{
    static uint8_t bytes[PARITY * (PDU + FMTP_MAC_MAX)];
    size_t seg = 0;

    for (unsigned i = 0; i < PARITY; i++) {
        struct fmtp_parity p = {0, (uint8_t)i, PARITY};
        struct fmtp_header h = {0, fmtp_parity_seqnum(p), BLOCK, FMTP_PARITY};
        seg = sealed(bytes + i * seg, h, symbols[i]);
    }
    send_all(bytes, seg, PARITY, gso);
}

/* Sends the first n blocks; forged: this one has a wrong MAC; -1: none has. */
static void send_blocks(unsigned n, int forged, bool gso)
{
    static uint8_t bytes[K * (PDU + FMTP_MAC_MAX)];
    size_t seg = 0;

    for (unsigned i = 0; i < n; i++) {
        struct fmtp_header h = {0, i * BLOCK, BLOCK, FMTP_MEM_DATA};
        seg = sealed(bytes + i * seg, h, product + i * BLOCK);
        if ((int)i == forged)
            bytes[i * seg + PDU] ^= 1;
    }
    send_all(bytes, seg, n, gso);
}

/* Reads everything, batch by batch, and passes it to the core; returns the number of batches. */
static unsigned take_batches(void)
{
    unsigned n = 0;

    for (; fmtp_multicast_in_read(t.in, t.core) > 0; n++)
        fmtp_multicast_in_deliver(t.in, t.core, 1000);
    return n;
}

static uint64_t in_place(uint64_t *mac_failures)
{
    struct fmtp_client_stats s = {0};

    fmtp_multicast_in_get_stats(t.in, &s);
    *mac_failures = s.mac_failures;
    return s.in_place;
}

/* The parity arrives first, so the product ends with the sixth of the ten blocks of a batch; the
 * other four are in memory that is freed by then. */
static void overtaken(unsigned mac_level, bool gso, bool stores)
{
    set_up(mac_level, stores);
    send_bop();
    send_parity(gso);
    take_batches();
    assert_non_null(t.memory);
    send_blocks(PARITY, -1, gso);
    assert_int_equal(take_batches(), 1);
    assert_int_equal(t.nended, 1);
    assert_memory_equal(t.got, product, SIZE);
    uint64_t failures;
    assert_int_equal(in_place(&failures), PARITY);
    assert_int_equal(failures, 0);
    /* The ten blocks by one call, and then each of those that were decoded. */
    assert_int_equal(t.nstored, stores ? 1 + PARITY : 0);
    tear_down();
}

static void test_overtaken_one_by_one(void **state)
{
    (void)state;
    for (unsigned level = 0; level <= 2; level++)
        overtaken(level, false, false);
}

static void test_overtaken_gso(void **state)
{
    (void)state;
    for (unsigned level = 0; level <= 2; level++)
        overtaken(level, true, false);
}

static void test_stored(void **state)
{
    (void)state;
    for (unsigned level = 0; level <= 2; level++) {
        overtaken(level, false, true);
        overtaken(level, true, true);
    }
}

/* A gap divides what is stored together; a received block is not stored again. */
static void test_stored_around_a_gap(void **state)
{
    (void)state;
    set_up(1, true);
    send_bop();
    take_batches();
    send_blocks(K, 5, false);
    take_batches();
    assert_int_equal(t.nstored, 2);
    send_blocks(K, -1, true);
    take_batches();
    assert_int_equal(t.nstored, 3);
    assert_int_equal(t.nended, 1);
    assert_memory_equal(t.got, product, SIZE);
    tear_down();
}

/* What cannot be stored is still missing, also if it could be decoded. */
static void test_not_stored(void **state)
{
    (void)state;
    set_up(0, true);
    t.full = true;
    send_bop();
    send_parity(false);
    send_blocks(K, -1, false);
    take_batches();
    assert_int_equal(t.nended, 0);
    t.full = false;
    send_blocks(K, -1, false);
    take_batches();
    assert_int_equal(t.nended, 1);
    assert_memory_equal(t.got, product, SIZE);
    tear_down();
}

/* A forged block among the last ones counts as forged, not as a duplicate; one among the first is
 * not accepted. */
static void forge(int number)
{
    set_up(1, false);
    send_bop();
    send_parity(false);
    take_batches();
    send_blocks(6, number, false);
    take_batches();
    uint64_t failures;
    in_place(&failures);
    assert_int_equal(failures, 1);
    assert_int_equal(t.nended, 0);
    send_blocks(K, 9, false);
    take_batches();
    in_place(&failures);
    assert_int_equal(failures, 2);
    assert_int_equal(t.nended, 1);
    assert_memory_equal(t.got, product, SIZE);
    tear_down();
}

static void test_forged(void **state)
{
    (void)state;
    forge(0);
    forge(5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overtaken_one_by_one),
        cmocka_unit_test(test_overtaken_gso),
        cmocka_unit_test(test_stored),
        cmocka_unit_test(test_stored_around_a_gap),
        cmocka_unit_test(test_not_stored),
        cmocka_unit_test(test_forged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
