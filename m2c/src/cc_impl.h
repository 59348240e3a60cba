/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kinds of congestion control share, and the interface where they differ. Private to the
 * library.
 */
#ifndef M2C_CC_IMPL_H
#define M2C_CC_IMPL_H

#include "congestion.h"
#include "webrc.h"

struct m2c_track { /* a channel's sequence numbers */
    bool is_heard;
    uint32_t next;
    uint32_t missing;    /* may still arrive out of order */
    unsigned since_hole; /* packets since the last of them went missing */
};

struct m2c_webrc { /* the letters are RFC 3738's */
    struct m2c_loss loss;
    double lossp, trr, arr, ssr;
    double rr, rr_max; /* of the epoch that ended; the largest since the last join */
    double trate;
};

struct m2c_aimd {
    double fair;                  /* packets/s */
    double received;              /* packets/s, average over about a round trip */
    double rtt_sum_s, rtt_weight; /* samples of the round trip, weighted */
    bool is_slow_start;
    bool is_losing, may_catch_up; /* recent epochs had loss; none of its own joins caused it */
    uint64_t deaf_ns;             /* static: until then, losses date from before the last leave */
};

struct m2c_policy {
    /* The base channel's first packet has arrived, at tau of the slot. */
    void (*begin)(struct m2c_cc *cc, double tau);
    /* This many packets have arrived or are missing. */
    void (*packets)(struct m2c_cc *cc, uint32_t count);
    void (*loss_event)(struct m2c_cc *cc, uint64_t now_ns);
    /* A slot has begun; is_left: the lowest layer was left. */
    void (*slot)(struct m2c_cc *cc, bool is_left);
    /* The first packet has arrived on the wave channel that was joined last. */
    void (*first)(struct m2c_cc *cc, double waited_s);
    /* An epoch of that length has ended. */
    void (*epoch)(struct m2c_cc *cc, double elapsed_s, uint64_t now_ns);
    /* Returns whether it may join another layer now, given that the common rules allow it. */
    bool (*may_join)(struct m2c_cc *cc, uint64_t now_ns);
    /* Returns whether it should join a layer although packets are being lost. NULL: never. */
    bool (*catches_up)(struct m2c_cc *cc, uint64_t now_ns);
    /* Returns how long a join may take to bring packets. */
    double (*patience_s)(const struct m2c_cc *cc);
    /* The number of layers has changed by a join, or by giving up one that brought nothing. */
    void (*layers)(struct m2c_cc *cc, unsigned before);
    void (*stats)(const struct m2c_cc *cc, struct m2c_cc_stats *out);
    /* Epochs begin with the slot, so that receivers behind one bottleneck join together and none
     * loses packets to a layer that only another one hears. */
    bool is_aligned;
};
extern const struct m2c_policy m2c_policy_webrc, m2c_policy_m2c, m2c_policy_static;

struct m2c_cc {
    struct m2c_cc_config cfg;
    const struct m2c_policy *policy;
    bool wanted[M2C_WAVE_CHANNELS_MAX + 1], told[M2C_WAVE_CHANNELS_MAX + 1]; /* per channel */
    struct m2c_track tracks[M2C_WAVE_CHANNELS_MAX + 1];
    bool has_begun; /* the base channel's first packet has arrived */
    enum m2c_cc_end end;
    unsigned ctsi, layers;               /* NWC */
    uint64_t heard_ns, slot_ns;          /* last packet; start of the slot */
    uint64_t epoch_ns;                   /* start of the epoch */
    uint64_t epoch_received, epoch_lost; /* within the epoch */
    bool is_joining;                     /* JOINING */
    unsigned joined_channel;             /* the last one joined */
    /* When it was joined; its first packet; until when losses belong to the last LOSS_EVENT. */
    uint64_t joined_ns, first_ns, loss_ns;
    double waited_before_s; /* previous join: FirstTime - JoinTime; 0: there was none */
    struct m2c_rtt rtt;
    struct m2c_webrc webrc;
    struct m2c_aimd aimd;
    struct m2c_cc_stats stats;
};

/* Leaves the top layer (static layers only). */
void m2c_cc_leave_top(struct m2c_cc *cc);
/* Records how long the last join waited for its first packet. Returns whether it was so much longer
 * than the join before that the line's queue must be filling, given the rate in packets/s (RFC
 * 3738, 3.2.2.6). */
bool m2c_cc_waits_longer(struct m2c_cc *cc, double waited_s, double rate);
/* Returns the position in the slot: tau in [0, 1]. */
double m2c_cc_tau(const struct m2c_cc *cc, uint64_t now_ns);
/* Returns the highest rate that the receiver may use or can get, packets/s. */
double m2c_cc_most(const struct m2c_cc *cc);
/* Returns the factor by which another layer raises the rate of n layers above the base. */
double m2c_cc_growth(const struct m2c_wave *w, unsigned layers);

#endif
