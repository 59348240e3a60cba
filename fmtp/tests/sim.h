/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated network in virtual time: one sender core, up to SIM_RECEIVERS receiver cores
 * (SIM_PEERS places at the sender, unless more are configured).
 *   multicast   one NIC of rate_bps (FMTP bytes and overhead_bytes per datagram), then each
 *               receiver's delay; loss (independent, in bursts, or chosen by drop()),
 *               duplication and reordering (extra delay)
 *               with buffer_bytes, datagrams wait there until the receiver has read the earlier
 *               ones, and are lost if it is full
 *   stream      per receiver, reliable and in order, with its delay each way, unicast_bps from
 *               the sender, cut into pieces of random size
 * Connections can break, either end can restart, clocks can leap forward. The seed determines
 * everything; the cores see only bytes and virtual time.
 */
#ifndef SIM_H
#define SIM_H

#include "receiver.h"
#include "sender.h"
#include "sim/events.h"

enum { SIM_PEERS = 128, SIM_RECEIVERS = 1024, SIM_DATAGRAM = 16384 };

struct sim_message { /* a message that passed on a stream */
    uint64_t at_ns;  /* when its last byte arrived */
    bool from_sender;
    struct fmtp_header h;
};

struct sim_receiver {
    struct fmtp_receiver *core;
    int peer;
    bool extended, ours;
    uint64_t delay_ns;
    uint64_t leapt_ns; /* how far its clock is ahead */
    uint64_t session;  /* if extended, else 0 */
    /* by index - first_index; of this life of the receiver and this session */
    uint8_t **data;
    int *begun, *ended, *missed;
    bool *intact;
    uint32_t *retx_blocks;
    uint64_t *ended_ns;
    uint64_t ended_before, missed_before; /* in earlier ones */
    void **strays;                        /* where products went that the sender did not send */
    size_t nstrays, withdrawn, forged_ended;
    size_t buffered;    /* bytes */
    uint64_t read_ns;   /* when it will have read all of them */
    uint64_t overflows; /* datagrams */
    struct sim_message *log;
    size_t nlog;
    uint64_t stream_free_ns;
    uint8_t *inbox; /* what arrived at the sender, which has not read it */
    size_t inbox_len;
    unsigned connection;                 /* bytes of an earlier one are lost */
    bool bad;                            /* in a burst of loss */
    uint8_t partial[2][FMTP_HEADER_LEN]; /* of the message being logged, by direction */
    size_t partial_len[2], skip[2];
    struct sim *sim;
};

struct sim_config {
    enum fmtp_layout layout;
    uint64_t rate_bps, unicast_bps, delay_ns;
    uint64_t delay_spread_ns; /* receiver i: delay_ns + i * spread */
    uint32_t overhead_bytes;  /* below FMTP, per datagram */
    double f_snd, f_rcv, loss, duplicate, reorder;
    bool timer_from_bop, timer_by_handover, blocking;
    uint64_t handover_ns;
    double burst_begins,
        burst_ends;      /* Gilbert-Elliott, per datagram; within a burst everything is lost */
    uint64_t reorder_ns; /* largest extra delay of a reordered datagram */
    int receivers;
    uint16_t block_bytes, fec_k;    /* fec_k 0: the sender has no extension */
    bool no_parity;                 /* with fec_k: repairs consist of the lost blocks themselves */
    bool (*extended)(int receiver); /* which receivers support it; NULL: all */
    uint64_t r_uc_bps;
    uint32_t first_index;
    uint32_t seed;
    size_t products; /* most; default 64 */
    size_t max_products, peer_queue_bytes, parity_bytes, reorder_blocks;
    bool refuse_all; /* begun() returns NULL */
    bool quiet;      /* streams are not logged */
    /* sim_forge() is used: a receiver may begin products that the sender did not send. */
    bool forged;
    bool original; /* the sender does not identify itself as ours, and sends no NOT_YET */
    uint64_t announced_bytes;
    size_t buffer_bytes;                 /* of each receiver; 0: it reads at once */
    uint64_t reads_bps, first_reads_bps; /* first: receiver 0; 0: like the others */
    uint64_t pause_ns, pause_end_ns;     /* meanwhile receiver 0 reads nothing */
    bool progress; /* receivers report what they have read, and the sender waits for them */
    /* Deterministic losses: returns whether this datagram is lost on the way to that receiver. */
    bool (*drop)(int receiver, const struct fmtp_header *h);
};

struct sim {
    struct sim_config cfg;
    struct fmtp_sender *sender;
    uint64_t session, sender_leapt_ns;
    struct sim_receiver rx[SIM_RECEIVERS];
    int nrx;
    uint64_t now_ns, nic_free_ns;
    uint64_t held_ns; /* receivers hold the multicast back until then; 0: they do not */
    uint64_t datagrams, datagram_bytes, stream_bytes; /* that left the sender */
    struct {
        uint32_t size;
        uint64_t at_ns;
        uint8_t *data;
    } * product;
    int nproducts, offered;
    int *multicasted, *released;
    enum fmtp_release *why;
    uint64_t *offered_ns, *multicasted_ns, *released_ns;
    struct tp_events events;
    uint64_t random;
    bool restarted;  /* the sender was restarted */
    uint64_t closed; /* connections that the sender closed */
};

struct sim *sim_new(const struct sim_config *cfg);
void sim_free(struct sim *s);
/* Offers a product of pseudo-random bytes at that time, or as soon as the sender is ready. */
void sim_product(struct sim *s, uint32_t size, uint64_t at_ns);
/* Connects one more receiver now. */
struct sim_receiver *sim_join(struct sim *s);
/* Breaks the receiver's connection and reconnects it; restart: it remembers nothing. */
void sim_reconnect(struct sim *s, int receiver, bool restart);
/* The receiver leaves for good: incomplete products are missed. */
void sim_leave(struct sim *s, int receiver);
/* Restarts the sender with the next index; all receivers reconnect. */
void sim_restart_sender(struct sim *s);
/* Delivers a forged datagram to the receiver now. */
void sim_forge(struct sim *s, int receiver, const struct fmtp_header *h, const uint8_t *payload);
/* Delivers a forged BOP of a product of that size. */
void sim_forge_bop(struct sim *s, int receiver, uint32_t index, uint32_t size);
/* Makes the clock of a receiver (-1: the sender) leap forward. */
void sim_leap(struct sim *s, int receiver, uint64_t ns);
/* Runs until nothing more can happen, or until until_ns. */
void sim_run(struct sim *s, uint64_t until_ns);
/* Returns a pseudo-random number in [0, n). */
uint32_t sim_random(struct sim *s, uint32_t n);
/* Returns how many messages of this kind about product `index` passed on the receiver's stream. */
int sim_count(const struct sim_receiver *rx, uint16_t flags, uint32_t index);
/* Returns the first of them, or NULL. */
const struct sim_message *sim_find(const struct sim_receiver *rx, uint16_t flags, uint32_t index);

#endif
