/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated network in virtual time: one sender core, up to SIM_RECEIVERS receiver cores.
 *   multicast   one NIC of rate_bps (FMTP bytes only, headers below are not counted), then to every
 *               receiver delay_ns, independent loss, duplication and reordering (extra delay)
 *   stream      per receiver, reliable and in order, delay_ns each way, unicast_bps from the
 *               sender, cut into pieces of random size
 * The seed decides everything; the cores see nothing but bytes and the virtual time.
 */
#ifndef SIM_H
#define SIM_H

#include "receiver.h"
#include "sender.h"

enum { SIM_RECEIVERS = 8, SIM_PRODUCTS = 64 };

struct sim_message {                     /* what passed on a stream */
    uint64_t at_ns;                      /* when its last byte arrived */
    bool from_sender;
    struct fmtp_header h;
};

struct sim_receiver {
    struct fmtp_receiver *core;
    int peer;
    uint8_t *data[SIM_PRODUCTS];         /* by index - first_index */
    int begun[SIM_PRODUCTS], ended[SIM_PRODUCTS], missed[SIM_PRODUCTS];
    bool intact[SIM_PRODUCTS];
    uint32_t retx_blocks[SIM_PRODUCTS];
    uint64_t ended_ns[SIM_PRODUCTS];
    struct sim_message *log;
    size_t nlog;
    uint64_t stream_free_ns;
    uint8_t partial[2][FMTP_MAX_PACKET]; /* of the message being logged, by direction */
    size_t partial_len[2];
    struct sim *sim;
};

struct sim_config {
    enum fmtp_layout layout;
    uint64_t rate_bps, unicast_bps, delay_ns;
    double f_snd, f_rcv, loss, duplicate, reorder;
    uint64_t reorder_ns;                 /* extra delay of a reordered datagram, at most */
    int receivers;
    uint32_t first_index;
    uint32_t seed;
    size_t max_products, peer_queue_bytes;
    bool refuse_all;                     /* begun() returns NULL */
    /* Deterministic losses: is this datagram lost on the way to that receiver? */
    bool (*drop)(int receiver, const struct fmtp_header *h);
};

struct sim {
    struct sim_config cfg;
    struct fmtp_sender *sender;
    struct sim_receiver rx[SIM_RECEIVERS];
    int nrx;
    uint64_t now_ns, nic_free_ns;
    struct { uint32_t size; uint64_t at_ns; uint8_t *data; } product[SIM_PRODUCTS];
    int nproducts, offered;
    int multicasted[SIM_PRODUCTS], released[SIM_PRODUCTS];
    enum fmtp_release why[SIM_PRODUCTS];
    uint64_t multicasted_ns[SIM_PRODUCTS], released_ns[SIM_PRODUCTS];
    struct sim_event *events;            /* heap */
    size_t nevents, events_capacity;
    uint64_t order;
    uint64_t random;
};

struct sim *sim_new(const struct sim_config *cfg);
void sim_free(struct sim *s);
/* Offers a product of pseudo-random bytes at that time (or as soon as the sender is ready). */
void sim_product(struct sim *s, uint32_t size, uint64_t at_ns);
/* Connects one more receiver now. */
struct sim_receiver *sim_join(struct sim *s);
/* Runs until there is nothing more to happen or until_ns. */
void sim_run(struct sim *s, uint64_t until_ns);
/* Pseudo-random number in [0, n). */
uint32_t sim_random(struct sim *s, uint32_t n);
/* How many messages of this kind about product `index` passed on the receiver's stream. */
int sim_count(const struct sim_receiver *rx, uint16_t flags, uint32_t index);
/* The first of them, or NULL. */
const struct sim_message *sim_find(const struct sim_receiver *rx, uint16_t flags, uint32_t index);

#endif
