/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver of a file: hands datagrams of its channels to congestion control and to Fcast's
 * receiver. Sans-I/O. Ignores a stranger's datagrams.
 */
#ifndef M2C_RECEIVER_H
#define M2C_RECEIVER_H

#include <stddef.h>

#include "congestion.h"

struct fcast_receiver;

struct m2c_receiver_config {
    enum m2c_cc_kind kind;
    struct m2c_wave_config wave; /* of the session; layers: 0: as the base channel's number says */
    double most_packets_per_s;   /* 0: no bound */
};

struct m2c_receiver_stats {
    struct m2c_cc_stats cc;
    uint64_t datagrams, bytes; /* of the session: UDP payload */
    uint64_t strange;          /* of the session, with an impossible channel number */
};

struct m2c_receiver;

/* Joins the base channel. The caller keeps `files`. NULL with errno: EINVAL, ENOMEM. */
struct m2c_receiver *m2c_receiver_new(const struct m2c_receiver_config *cfg,
                                      struct fcast_receiver *files, uint64_t now_ns);
void m2c_receiver_free(struct m2c_receiver *r);
/* Takes a datagram; `source` distinguishes senders. */
void m2c_receiver_datagram(struct m2c_receiver *r, uint64_t source, const uint8_t *bytes,
                           size_t len, uint64_t now_ns);
/* Call it at m2c_receiver_deadline() at the latest. */
void m2c_receiver_time(struct m2c_receiver *r, uint64_t now_ns);
uint64_t m2c_receiver_deadline(const struct m2c_receiver *r);
/* Gives the next group to join or leave, by its number in the session: 0 is the base channel, 1 +
 * CN a wave channel. false: none now. */
struct m2c_group_change {
    bool joins;
    unsigned group;
};
bool m2c_receiver_change(struct m2c_receiver *r, struct m2c_group_change *out);
enum m2c_cc_end m2c_receiver_ended(const struct m2c_receiver *r);
/* The session's wave; NULL: no packet came yet. */
const struct m2c_wave *m2c_receiver_wave(const struct m2c_receiver *r);
void m2c_receiver_get_stats(const struct m2c_receiver *r, struct m2c_receiver_stats *out);

#endif
