/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver of a file: passes datagrams of its channels to congestion control and to Fcast's
 * receiver. Sans-I/O. Ignores datagrams of other sessions.
 */
#ifndef M2C_RECEIVER_H
#define M2C_RECEIVER_H

#include <stddef.h>

#include "congestion.h"

struct fcast_receiver;

struct m2c_receiver_config {
    enum m2c_cc_kind kind;
    /* The session's; layers 0: derived from the base channel's number. */
    struct m2c_wave_config wave;
    double most_packets_per_s; /* 0: unlimited */
};

struct m2c_receiver_stats {
    struct m2c_cc_stats cc;
    uint64_t datagrams, bytes; /* of the session; bytes of UDP payload */
    uint64_t strange;          /* datagrams of the session with an impossible channel number */
};

struct m2c_receiver;

/* Starts by joining the base channel. The caller keeps ownership of `files`. Returns NULL with
 * errno: EINVAL, ENOMEM. */
struct m2c_receiver *m2c_receiver_new(const struct m2c_receiver_config *cfg,
                                      struct fcast_receiver *files, uint64_t now_ns);
void m2c_receiver_free(struct m2c_receiver *r);
/* Processes a datagram; `source` distinguishes senders. */
void m2c_receiver_datagram(struct m2c_receiver *r, uint64_t source, const uint8_t *bytes,
                           size_t len, uint64_t now_ns);
/* Call this no later than m2c_receiver_deadline(). */
void m2c_receiver_time(struct m2c_receiver *r, uint64_t now_ns);
uint64_t m2c_receiver_deadline(const struct m2c_receiver *r);
/* Returns the next group to join or leave, by its number in the session: 0 is the base channel, 1 +
 * CN a wave channel. false: none at present. */
struct m2c_group_change {
    bool joins;
    unsigned group;
};
bool m2c_receiver_change(struct m2c_receiver *r, struct m2c_group_change *out);
enum m2c_cc_end m2c_receiver_ended(const struct m2c_receiver *r);
/* Returns the session's wave; NULL: no packet has arrived yet. */
const struct m2c_wave *m2c_receiver_wave(const struct m2c_receiver *r);
void m2c_receiver_get_stats(const struct m2c_receiver *r, struct m2c_receiver_stats *out);

#endif
