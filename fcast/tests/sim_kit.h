/* SPDX-License-Identifier: Apache-2.0
 *
 * A carousel and its receivers on a simulated network: one datagram per interval; loss, delay and
 * duplicates differ for each receiver. The seed determines everything.
 */
#ifndef FCAST_SIM_KIT_H
#define FCAST_SIM_KIT_H

#include "fcast.h"
#include "sim/events.h"

enum { SIM_FILES = 64, SIM_RECEIVERS = 16 };

struct sim_config {
    struct fcast_sender_config sender;
    unsigned receivers;
    uint64_t seed;
    double loss, duplicate, reorder;
    uint32_t periodic;        /* every nth datagram is lost; 0: none */
    uint32_t phase;           /* offset of these; 1: the first one is lost */
    uint32_t late;            /* receiver i joins after i times this many datagrams */
    unsigned max_objects;     /* of the receivers; 0: the default */
    uint64_t max_bytes;       /* likewise */
    const uint8_t *other_key; /* a key for the receivers, of sender.key_len; NULL: the sender's */
    uint32_t max_age_s;       /* at the receivers */
    uint64_t datagrams_max;   /* the limit at which to give up */
    void (*between)(struct fcast_receiver *r, uint64_t sent); /* forges datagrams */
};

/* Bytes in memory, with an object's length or growing as they are written. */
struct sim_store {
    uint8_t *data;
    uint64_t room;
    bool is_fixed;
};

struct sim_file {
    uint64_t bytes, toi;
    uint8_t *data;
};

/* What a receiver keeps on disk, which survives the receiver. Places of TOIs from SIM_FILES on,
 * which are forged, keep nothing. */
struct sim_place {
    uint64_t toi, bytes;
    struct sim_store data, repair;
    struct fcast_symbol *notes;
    uint64_t note_count, note_room;
    struct sim_place *next;
};

struct sim_receiver {
    struct sim *sim;
    struct fcast_receiver *core;
    struct sim_place *places;
    bool has[SIM_FILES]; /* per TOI */
    unsigned done, dropped, wrong;
    uint64_t promised, promised_max; /* bytes of all places together */
    uint64_t done_at;                /* datagrams sent when the last file was complete */
    uint64_t finished;               /* datagrams sent until it had all files; 0: not yet */
};

struct sim {
    struct sim_config cfg;
    struct fcast_sender *sender;
    struct sim_file files[SIM_FILES];
    unsigned file_count;
    struct sim_store repair;
    struct sim_receiver receivers[SIM_RECEIVERS];
    struct tp_events events;
    uint64_t random, now_ns, sent, symbols; /* symbols: of all objects, including headers */
    bool ended;
};

struct sim *sim_new(const struct sim_config *cfg);
void sim_free(struct sim *s);
/* Adds a file of pseudo-random bytes. */
void sim_file(struct sim *s, uint64_t bytes);
/* Runs until all receivers have everything, the carousel ends, or this many datagrams were sent. */
void sim_run(struct sim *s, uint64_t datagrams_max);
/* Kills the receiver; a new one takes over its places. */
void sim_restart(struct sim *s, unsigned receiver);
/* Returns how many datagrams passed while the receiver listened, divided by the objects'
 * symbols. */
double sim_listening(const struct sim *s, unsigned receiver);

#endif
