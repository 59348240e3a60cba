/* SPDX-License-Identifier: Apache-2.0
 *
 * Fcast: a carousel of files for any number of receivers, by FCAST (RFC 6968) or FLUTE (RFC 6726)
 * over ALC (RFC 5775), or by the packets of 1999.
 *
 * Sender and receiver are sans-I/O: no call blocks or reads a clock, a socket or a file. Datagrams
 * go in and out as bytes, objects through functions of the caller. Names include the units.
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
    /* The protocol of 1999: one file, Reed-Solomon, no descriptor and no end of session
     * (seed.h). */
    FCAST_PROTOCOL_SEED
};

enum { FCAST_DATAGRAM_MAX = 65507, FCAST_OVERHEAD_MAX = 64 /* header bytes of a datagram */ };
enum { FCAST_LDPC_K = 10000 /* most source symbols of a block, unless configured */ };

/* Random access to stored bytes. Both functions return 0, or -1 with errno. */
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
    uint8_t n1;            /* LDPC: entries of a column; 0: 3 (Triangle) or 5 (Staircase) */
    int rs_kind;           /* enum rs_kind */
    uint16_t symbol_bytes; /* E */
    /* Most source symbols of a block; 0: 200 with RS, seed: 32, else 10,000. */
    uint32_t k;
    double overhead; /* repair symbols per source symbol: with 0.5, n = 1.5 k */
    enum fcast_order order;
    uint64_t cycles;    /* 0: endless */
    uint64_t random;    /* seed of the random order */
    uint64_t expires;   /* FLUTE: expiry of the FDT, NTP seconds */
    const uint8_t *key; /* NULL: no authentication */
    size_t key_len;
    struct fcast_store repair; /* provided by the caller, of any size: keeps repair symbols */
};

struct fcast_sender_stats {
    uint64_t sent, rounds, index; /* datagrams; whole cycles; index of the symbol in this cycle */
    uint64_t source, repair, control; /* datagrams of each kind */
    uint64_t errors;                  /* reads or encodings that failed */
};

struct fcast_sender;

/* Copies cfg. Returns NULL with errno: EINVAL for an impossible configuration, ENOMEM. */
struct fcast_sender *fcast_sender_new(const struct fcast_sender_config *cfg);
void fcast_sender_free(struct fcast_sender *s);
/* Adds an object whose data `source` reads; call this before the first datagram. The repair symbols
 * of a block are computed when the first of them is due. meta: location, type, digest. *toi
 * receives the object's number. Returns -1 with errno: EFBIG: too large for the code; ENOSPC: too
 * many objects (seed: more than one); or the stores' error. */
int fcast_sender_add(struct fcast_sender *s, const struct fcast_meta *meta, uint64_t bytes,
                     const struct fcast_store *source, uint64_t *toi);
/* Completes the list of objects: receivers may leave once they have all. Returns -1 if out of
 * memory. */
int fcast_sender_commit(struct fcast_sender *s);
/* Returns how many bytes the objects' repair symbols take in the store. */
uint64_t fcast_sender_repair_bytes(const struct fcast_sender *s);
/* Writes the next datagram to out (FCAST_DATAGRAM_MAX bytes) and returns its length; 0 if all
 * cycles are done or the stores failed (stats). */
size_t fcast_sender_next(struct fcast_sender *s, uint8_t *out);
/* For layered multicast, which schedules packets itself: returns how many encoding symbols the only
 * object has, in an order that alternates between the blocks. */
uint64_t fcast_sender_symbols(const struct fcast_sender *s);
/* Writes the datagram with symbol `number` (from 0) and returns its length; 0 if the stores failed
 * (stats). */
size_t fcast_sender_pick(struct fcast_sender *s, uint64_t number, uint8_t *out);
/* Sets the congestion control information of later datagrams, which otherwise is a sequence
 * number. */
void fcast_sender_set_cci(struct fcast_sender *s, uint32_t cci);
/* Sets the time (NTP seconds) that later datagrams with a MAC carry. */
void fcast_sender_set_time(struct fcast_sender *s, uint32_t ntp_s);
/* Writes the datagram that ends the session; 0 if the protocol has none (seed). */
size_t fcast_sender_close(struct fcast_sender *s, uint8_t *out);
void fcast_sender_get_stats(const struct fcast_sender *s, struct fcast_sender_stats *out);

/* ------------------------------------------------------------------ receiving side */

/* Where a receiver assembles an object. `data` has the object's addresses; `repair` holds repair
 * symbols for computing missing ones. */
struct fcast_place {
    void *ctx;
    struct fcast_store data, repair;
    /* Notes that the symbol is in the stores. May be NULL. */
    void (*note)(void *ctx, struct fcast_symbol s);
    /* Returns the i-th note of an earlier process; false: there is none. May be NULL. */
    bool (*noted)(void *ctx, uint64_t i, struct fcast_symbol *out);
    /* Writes the notes to disk. Returns -1 with errno. May be NULL. */
    int (*sync)(void *ctx);
    /* For a storage scheme that keeps the symbols itself until each block has k, and then decodes
     * them (Reed-Solomon only): the stores are then only read, after settle(). Returns 0, or -1
     * with errno. NULL: symbols go to the stores. */
    int (*keep)(void *ctx, struct fcast_symbol s, const uint8_t *bytes);
    int (*settle)(void *ctx);
};
#define FCAST_BLOCK_DONE UINT32_MAX /* id of a note: all source symbols of the block are stored */

enum fcast_begin { FCAST_REFUSE, FCAST_WANT, FCAST_HAVE /* complete from an earlier run */ };
enum fcast_done {
    FCAST_WRONG,    /* contradicts the digest: the object starts over */
    FCAST_STORED,   /* the caller has stored it */
    FCAST_UNSTORED, /* the caller cannot keep it and does not want it again */
};

struct fcast_receiver_config {
    enum fcast_protocol protocol;
    int rs_kind;
    bool has_tsi;
    uint64_t tsi; /* seed: the file's ID */
    const uint8_t *key;
    size_t key_len;
    uint32_t max_age_s; /* of datagrams with a MAC, relative to fcast_receiver_set_time(); 0: any */
    /* Bounds on what untrusted senders can make it store. 0: the default. */
    unsigned max_objects;      /* at the same time (64) */
    uint64_t max_object_bytes; /* 64 GiB */
    uint64_t max_bytes;        /* of all objects at the same time: 128 GiB */
    uint64_t max_block_bytes;  /* memory to decode one block: 64 MiB */
    /* Silence after which another session may replace this one (10 s), if no object of this one is
     * complete. */
    uint64_t silence_ns;
    bool follows; /* another session may always replace it, at once if the sender ends this one */
    void *ctx;
    /* An object begins: fill in *out to accept it. */
    enum fcast_begin (*begin)(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out);
    /* The object is complete: its data are at [at, at + bytes) of the store. The caller owns the
     * place again. */
    enum fcast_done (*done)(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes);
    /* The object remains incomplete; the caller owns the place again. keep: only because the
     * receiver ends. */
    void (*drop)(void *ctx, uint64_t toi, void *place, bool keep);
};

struct fcast_receiver_stats {
    uint64_t received;          /* datagrams of the session */
    uint64_t lost;              /* according to the sequence numbers */
    uint64_t out_of_order;      /* according to them too */
    uint64_t redundant;         /* symbols that were not needed */
    uint64_t stray;             /* of other sessions, senders or objects */
    uint64_t malformed, forged; /* not ALC packets; wrong MAC */
    uint64_t stale;             /* correct MAC, wrong time: replayed, or a clock is wrong */
    int64_t stale_s;            /* age of the last stale datagram; negative: in the future */
    uint64_t conflicting;       /* with an OTI other than the object's first */
    uint64_t refused;           /* objects beyond a bound, or not wanted */
    uint64_t evicted;           /* objects dropped in favor of others */
    uint64_t decoded;           /* blocks completed by repair symbols */
    uint64_t restored;          /* symbols from an earlier run */
    uint64_t objects_started, objects_done, objects_wrong, objects_unstored;
    uint64_t store_errors;
    uint64_t useful; /* symbols stored */
};

struct fcast_receiver;

/* Copies cfg. Returns NULL with errno on failure. */
struct fcast_receiver *fcast_receiver_new(const struct fcast_receiver_config *cfg);
/* Calls drop() with keep for each incomplete object, and frees the receiver. */
void fcast_receiver_free(struct fcast_receiver *r);
/* Processes a datagram; `source` distinguishes senders. Returns whether it belongs to the
 * session. */
bool fcast_receiver_datagram(struct fcast_receiver *r, uint64_t source, const uint8_t *bytes,
                             size_t len, uint64_t now_ns);
/* Sets the time (NTP seconds) that the ages of datagrams with a MAC are relative to. */
void fcast_receiver_set_time(struct fcast_receiver *r, uint32_t ntp_s);
/* Reads the first word of a datagram's congestion control information. Returns false if it is not
 * an ALC packet. */
bool fcast_datagram_cci(const uint8_t *bytes, size_t len, uint32_t *cci);
/* Returns whether this receiver has everything that the carousel sends: its last descriptor is
 * complete and so are all objects that it names (seed: one file is complete). */
bool fcast_receiver_has_all(const struct fcast_receiver *r);
/* Returns whether the sender ended the session. */
bool fcast_receiver_is_closed(const struct fcast_receiver *r);
/* Returns when the session's last datagram arrived; 0: none has. */
uint64_t fcast_receiver_heard_ns(const struct fcast_receiver *r);
void fcast_receiver_get_stats(const struct fcast_receiver *r, struct fcast_receiver_stats *out);
/* Counts symbols of unfinished objects: how many have arrived, and how many would suffice. */
void fcast_receiver_progress(const struct fcast_receiver *r, uint64_t *have, uint64_t *need);

#endif
