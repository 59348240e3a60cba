/* SPDX-License-Identifier: Apache-2.0
 *
 * Fcast: a carousel of files for any number of receivers, by FCAST (RFC 6968) or FLUTE (RFC 6726)
 * over ALC (RFC 5775), or as in 1999.
 *
 * Sender and receiver are sans-I/O: no call blocks or reads a clock, a socket or a file. Datagrams
 * go in and out as bytes, objects through functions of the caller. Units are in the names.
 */
#ifndef FCAST_H
#define FCAST_H

#include "fdt.h"
#include "fti.h"
#include "object.h"
#include "order.h"

enum fcast_protocol {
    FCAST_PROTOCOL_FCAST,
    FCAST_PROTOCOL_FLUTE,
    FCAST_PROTOCOL_SEED /* of 1999: one file, Reed-Solomon, no descriptor and no end (seed.h) */
};

enum { FCAST_DATAGRAM_MAX = 65507, FCAST_OVERHEAD_MAX = 64 /* header bytes of a datagram */ };

/* Bytes somewhere. 0, or -1 with errno. */
struct fcast_store {
    void *ctx;
    int (*read)(void *ctx, uint64_t at, void *bytes, size_t len);
    int (*write)(void *ctx, uint64_t at, const void *bytes, size_t len);
};

/* ------------------------------------------------------------------ sending side */

struct fcast_sender_config {
    uint64_t tsi; /* at most 16 bits; seed: the file's ID */
    enum fcast_protocol protocol;
    uint8_t fec;           /* enum fcast_fec */
    int rs_kind;           /* enum rs_kind */
    uint16_t symbol_bytes; /* E */
    uint32_t k;            /* most source symbols of a block; 0: 200 with RS, seed: 32,
                            * else 10,000 */
    double overhead;       /* repair symbols for each source symbol: 0.5 is n = 1.5 k */
    enum fcast_order order;
    uint64_t cycles;    /* 0: without end */
    uint64_t random;    /* seed of the order */
    uint64_t expires;   /* FLUTE: of the FDT, NTP seconds */
    const uint8_t *key; /* NULL: no authentication */
    size_t key_len;
    struct fcast_store repair; /* the caller's, of any size: keeps repair symbols */
};

struct fcast_sender_stats {
    uint64_t sent, rounds, index;     /* datagrams; whole cycles; of the symbol in this cycle */
    uint64_t source, repair, control; /* of the datagrams */
    uint64_t errors;                  /* reads or encodings that failed */
};

struct fcast_sender;

/* Copies cfg. NULL with errno: EINVAL for an impossible configuration, ENOMEM. */
struct fcast_sender *fcast_sender_new(const struct fcast_sender_config *cfg);
void fcast_sender_free(struct fcast_sender *s);
/* Adds an object whose data `source` reads, before the first datagram. Computes its repair
 * symbols block by block, when the first of a block is due. meta: location, type, digest. *toi
 * gets its number. -1 with errno: EFBIG: too large for the code, ENOSPC: too many objects (seed:
 * one), or what the stores said. */
int fcast_sender_add(struct fcast_sender *s, const struct fcast_meta *meta, uint64_t bytes,
                     const struct fcast_store *source, uint64_t *toi);
/* Ends the list of objects: receivers may leave when they have all. -1: no memory. */
int fcast_sender_commit(struct fcast_sender *s);
/* Bytes of the objects' repair symbols in the store. */
uint64_t fcast_sender_repair_bytes(const struct fcast_sender *s);
/* Writes the next datagram to out (FCAST_DATAGRAM_MAX bytes); returns its length. 0: all cycles are
 * done, or the stores failed (stats). */
size_t fcast_sender_next(struct fcast_sender *s, uint8_t *out);
/* For layered multicast, which schedules packets itself: how many encoding symbols the only object
 * has, in an order that takes the blocks in turn. */
uint64_t fcast_sender_symbols(const struct fcast_sender *s);
/* Writes the datagram with one of them, from 0; returns its length. 0: the stores failed (stats).
 */
size_t fcast_sender_pick(struct fcast_sender *s, uint64_t number, uint8_t *out);
/* Sets the congestion control information of later datagrams, instead of a sequence number. */
void fcast_sender_set_cci(struct fcast_sender *s, uint32_t cci);
/* Sets the time (NTP, seconds) in later datagrams with a MAC. */
void fcast_sender_set_time(struct fcast_sender *s, uint32_t ntp_s);
/* Writes the datagram that ends the session. 0: the protocol has none (seed). */
size_t fcast_sender_close(struct fcast_sender *s, uint8_t *out);
void fcast_sender_get_stats(const struct fcast_sender *s, struct fcast_sender_stats *out);

/* ------------------------------------------------------------------ receiving side */

/* Where a receiver assembles an object. `data` has the object's addresses; `repair` holds symbols
 * that help to compute missing ones. */
struct fcast_place {
    void *ctx;
    struct fcast_store data, repair;
    /* Notes that the symbol is now in the stores. May be NULL. */
    void (*note)(void *ctx, struct fcast_symbol s);
    /* Gives the i-th note of an earlier process; false: there is none. May be NULL. */
    bool (*noted)(void *ctx, uint64_t i, struct fcast_symbol *out);
    /* Writes the notes to the disk. -1 with errno. May be NULL. */
    int (*sync)(void *ctx);
    /* A scheme of storage that takes the symbols itself until each block has k, and then makes the
     * data of them (Reed-Solomon alone): the stores are only read, after settle(). 0, or -1 with
     * errno. NULL: the stores take them. */
    int (*keep)(void *ctx, struct fcast_symbol s, const uint8_t *bytes);
    int (*settle)(void *ctx);
};
#define FCAST_BLOCK_DONE UINT32_MAX /* id of a note: all source symbols of the block are there */

enum fcast_begin { FCAST_REFUSE, FCAST_WANT, FCAST_HAVE /* from an earlier life */ };
enum fcast_done {
    FCAST_WRONG,    /* does not match the digest: the object starts over */
    FCAST_STORED,   /* the caller has it */
    FCAST_UNSTORED, /* the caller cannot keep it and does not want it again */
};

struct fcast_receiver_config {
    enum fcast_protocol protocol;
    int rs_kind;
    bool has_tsi;
    uint64_t tsi; /* seed: the file's ID */
    const uint8_t *key;
    size_t key_len;
    uint32_t max_age_s; /* of datagrams with a MAC, by fcast_receiver_set_time(); 0: any */
    /* Bounds on what a stranger can make it store. 0: the default. */
    unsigned max_objects;      /* at a time (64) */
    uint64_t max_object_bytes; /* 64 GiB */
    uint64_t max_bytes;        /* of all objects at a time: 128 GiB */
    uint64_t max_block_bytes;  /* memory to decode one block: 64 MiB */
    uint64_t silence_ns;       /* after it another session may take the place (10 s), as long as
                                * nothing of the first is complete, */
    bool follows;              /* or in any case, and at once when the sender ends it */
    void *ctx;
    /* An object begins: fill *out if it is wanted. */
    enum fcast_begin (*begin)(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out);
    /* It is complete: its data are at [at, at + bytes) of the store. The caller gets the place
     * back. */
    enum fcast_done (*done)(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes);
    /* It stays incomplete: the caller gets the place back. keep: only because the receiver
     * ends. */
    void (*drop)(void *ctx, uint64_t toi, void *place, bool keep);
};

struct fcast_receiver_stats {
    uint64_t received;          /* datagrams of the session */
    uint64_t lost;              /* by their sequence numbers */
    uint64_t out_of_order;      /* as well */
    uint64_t redundant;         /* symbols not needed */
    uint64_t stray;             /* of other sessions, senders or objects */
    uint64_t malformed, forged; /* no ALC packets; wrong MAC */
    uint64_t stale;             /* right MAC, wrong time: replayed, or a wrong clock */
    int64_t stale_s;            /* age of the last of them; negative: later than now */
    uint64_t conflicting;       /* other OTI than the object's first */
    uint64_t refused;           /* objects beyond a bound, or not wanted */
    uint64_t evicted;           /* objects that gave way to others */
    uint64_t decoded;           /* blocks that repair symbols completed */
    uint64_t restored;          /* symbols of an earlier life */
    uint64_t objects_started, objects_done, objects_wrong, objects_unstored;
    uint64_t store_errors;
    uint64_t useful; /* symbols that were stored */
};

struct fcast_receiver;

/* Copies cfg. NULL with errno. */
struct fcast_receiver *fcast_receiver_new(const struct fcast_receiver_config *cfg);
/* Calls drop() with keep for each incomplete object. */
void fcast_receiver_free(struct fcast_receiver *r);
/* Takes a datagram; `source` distinguishes senders. Returns whether it is of the session. */
bool fcast_receiver_datagram(struct fcast_receiver *r, uint64_t source, const uint8_t *bytes,
                             size_t len, uint64_t now_ns);
/* Sets the time (NTP, seconds) against which it measures the age of datagrams with a MAC. */
void fcast_receiver_set_time(struct fcast_receiver *r, uint32_t ntp_s);
/* The first word of a datagram's congestion control information. false: it is not an ALC packet. */
bool fcast_datagram_cci(const uint8_t *bytes, size_t len, uint32_t *cci);
/* True if this receiver has all that the carousel sends (its last descriptor is complete, and all
 * objects that it names are here; seed: a file is here). */
bool fcast_receiver_has_all(const struct fcast_receiver *r);
/* True if the sender ended the session. */
bool fcast_receiver_is_closed(const struct fcast_receiver *r);
/* When the session's last datagram came; 0: none came. */
uint64_t fcast_receiver_heard_ns(const struct fcast_receiver *r);
void fcast_receiver_get_stats(const struct fcast_receiver *r, struct fcast_receiver_stats *out);
/* Symbols of unfinished objects: how many there are, and how many would be enough. */
void fcast_receiver_progress(const struct fcast_receiver *r, uint64_t *have, uint64_t *need);

#endif
