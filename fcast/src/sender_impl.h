/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the sender.
 */
#ifndef FCAST_SENDER_IMPL_H
#define FCAST_SENDER_IMPL_H

#include "auth.h"
#include "encode.h"
#include "fcast.h"

struct object {
    uint64_t toi;
    struct fcast_fti fti;
    struct fcast_partition partition;
    struct fcast_meta meta;
    struct fcast_store source;
    uint64_t bytes;
    uint8_t *header; /* FCAST: the object begins with it */
    size_t header_len;
    uint8_t *trailer; /* 1999: the object ends with it */
    size_t trailer_len;
    uint64_t repair_at; /* offset in the repair store */
    bool is_control;
};

struct group { /* a block of an object */
    uint32_t object, block, k, n;
    uint64_t first, repair_at; /* its first source symbol; offset of its repair symbols */
    bool is_encoded;
    uint8_t *ahead; /* the next source symbols; NULL: each is read separately */
    uint32_t ahead_first, ahead_count;
};

struct fcast_sender {
    struct fcast_sender_config cfg;
    struct fcast_auth *auth;
    struct object *objects;
    uint32_t count, room;
    struct group *groups;
    uint32_t group_count, *order, at; /* order[at]: the next group for this index */
    uint32_t index, index_end;        /* in this cycle; the largest n */
    uint8_t *ahead;                   /* for all groups */
    uint32_t ahead_most;
    uint64_t repair_end, random;
    struct object control;                               /* the descriptor */
    uint32_t control_symbol, since_control, control_gap; /* datagrams; the gap changes each time */
    uint64_t control_mean, control_random;
    bool is_committed, is_done;
    uint32_t sequence, cci, ntp_s;
    bool has_cci; /* instead of the sequence number */
    struct fcast_sender_stats stats;
};

#endif
