/* SPDX-License-Identifier: Apache-2.0
 *
 * Product queue: a fixed-size, memory-mapped file shared by processes (design: "file queue" of
 * MPUP16 Fig. 1). Products are kept in insertion order; the oldest make room for new ones. Any
 * number of readers and writers in any number of processes.
 *
 * A product is one contiguous region; info.data_offset says where its data begin (an FMTP product
 * is an XDR prod_info followed by the data, stored as received).
 */
#ifndef PQ_H
#define PQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>

#define PQ_IDENT_MAX 255
#define PQ_ORIGIN_MAX 64

enum pq_status {
    PQ_OK = 0,
    PQ_END,     /* no (further) product */
    PQ_DUP,     /* a product with this signature is in the queue */
    PQ_BIG,     /* larger than the queue */
    PQ_FULL,    /* the room that must be made is pinned by readers, which did not release it */
    PQ_CORRUPT, /* not a product queue, other version, or damaged */
    PQ_SYSTEM,  /* see errno */
    PQ_INVAL
};
/* Returns a message for the user; for PQ_SYSTEM that of errno. */
const char *pq_strerror(enum pq_status st);

struct pq_signature {
    uint8_t bytes[16];
}; /* MD5 of the data */

struct pq_info {             /* LDM prod_info */
    struct timeval creation; /* at the origin, CLOCK_REALTIME */
    struct pq_signature signature;
    char origin[PQ_ORIGIN_MAX + 1];
    uint32_t feedtype;
    uint32_t seqno;
    char ident[PQ_IDENT_MAX + 1];
    uint32_t size; /* bytes of data */
};

/* A process's handle, for the thread that opened it (if that thread ends, the handle counts as
 * dead). After fork() a child must open its own; with an inherited handle it may only call
 * pq_close(), every other call returns PQ_INVAL. */
struct pq;

/* Creates a queue (fails with PQ_SYSTEM/EEXIST if the file exists, unless replace). Really
 * allocates data_bytes on disk (posix_fallocate: ENOSPC now instead of SIGBUS later). slots: most
 * products. The file has mode 0640, reduced by the umask: using the queue requires rights to read
 * and write it. */
enum pq_status pq_create(const char *path, uint64_t data_bytes, uint32_t slots, bool replace);
/* Returns how much disk space a queue takes, including tables; 0 if no such queue is possible. */
uint64_t pq_file_bytes(uint64_t data_bytes, uint32_t slots);
/* Checks the geometry and size of the file. It also checks that all tables agree, but only if no
 * living process has the queue open and the last one was killed, or if something else has changed
 * the file since. This is O(1), except in these cases, after a reboot and in a copy of the file.
 * Does not lock the file: a reader excludes no other process. EUSERS: more than 512 handles are
 * open. writable = false forbids pq_reserve(), and writing to a product ends the process (SIGSEGV);
 * the file must still be writable (pins are kept in it). */
enum pq_status pq_open(const char *path, bool writable, struct pq **out);
/* Releases this handle's reservations and pins. q may be NULL. */
void pq_close(struct pq *q);

/* Copies a product in. */
enum pq_status pq_insert(struct pq *q, const struct pq_info *info, const void *data);

/* Two-step insertion: the bytes are received straight into the queue. A reservation is invisible to
 * readers until pq_commit(); pq_discard() frees it. */
struct pq_reservation;
/* sig may be NULL if it is not known yet: then only pq_commit() looks for a duplicate. If the room
 * that must be made is in use, its users are asked to release it (pq_room_asked) and waited for, at
 * most a second, before the result is PQ_FULL; then not again for ten seconds. */
enum pq_status pq_reserve(struct pq *q, const struct pq_signature *sig, uint64_t region_bytes,
                          void **region, struct pq_reservation **out);
/* data_offset + info->size <= region_bytes. Returns PQ_DUP (and discards) if the product arrived
 * meanwhile. After any other error the reservation still exists. */
enum pq_status pq_commit(struct pq *q, struct pq_reservation *r, const struct pq_info *info,
                         uint32_t data_offset);
/* Frees the reservation and r. */
void pq_discard(struct pq *q, struct pq_reservation *r);

/* Sets how long pq_reserve() and pq_insert() of this handle wait for room (default 2000 ms). 0: not
 * at all. */
void pq_set_patience(struct pq *q, unsigned ms);
/* Returns whether another process waits for room: then this one should release what it can of the
 * products with positions up to *up_to, even at a cost. Returns true once per request; the
 * descriptor of pq_notify_fd() becomes readable. */
bool pq_room_asked(struct pq *q, uint64_t *up_to);

/* A pinned product: its bytes stay in place until pq_release(). */
struct pq_view {
    struct pq_info info;
    const uint8_t *data;     /* info.size bytes */
    uint64_t seq;            /* position in insertion order, from 1 */
    struct timeval inserted; /* CLOCK_REALTIME here */
    uint32_t slot;           /* internal */
};
/* Returns the first product with position > after. after = 0: the oldest. O(1), or O(log slots) if
 * the product at `after` is gone. */
enum pq_status pq_next(struct pq *q, uint64_t after, struct pq_view *out);
/* Returns the product with this signature, pinned. PQ_END: none. */
enum pq_status pq_find(struct pq *q, const struct pq_signature *sig, struct pq_view *out);
/* Unpins it. Ignores a view that is all zero. */
void pq_release(struct pq *q, struct pq_view *v);
/* Finds where to begin with pq_next() to get what was inserted at `from` or later: O((log
 * slots)^2). It skips no such product, even if the clock was set back meanwhile; in that case some
 * older ones may come first. */
enum pq_status pq_seek(struct pq *q, const struct timeval *from, uint64_t *after);
/* Removes a product; handles that have pinned it may continue to read it. PQ_END: none at that
 * position. */
enum pq_status pq_remove(struct pq *q, uint64_t seq);

/* Returns the position of the newest product (0: none yet). */
uint64_t pq_last_seq(struct pq *q);
/* Returns the position of what this handle committed last (0: nothing yet). */
uint64_t pq_committed_seq(const struct pq *q);
/* Returns a descriptor that becomes readable at every insertion by any process (drain it with
 * pq_notify_clear(), then read with pq_next() until PQ_END). Costs nothing while the queue is idle.
 * It is an eventfd fed by a small thread of this handle (which blocks all signals; pq_close() joins
 * it). Readable at once if the queue is not empty at the first call. Returns -1 with errno on
 * failure. */
int pq_notify_fd(struct pq *q);
/* Makes the descriptor unreadable until the next insertion. */
void pq_notify_clear(struct pq *q);

struct pq_stats {
    uint64_t data_bytes, used_bytes, high_water_bytes;
    uint32_t slots, used_slots, high_water_slots;
    /* Since creation. A process killed meanwhile may leave one uncounted. */
    uint64_t inserted, evicted, removed, duplicates;
    uint64_t recoveries;                 /* times that a process died holding the lock */
    bool unclean;                        /* see PQ_RESET_UNCLEAN */
    double age_oldest_s, age_youngest_s; /* since insertion; -1: no product */
    /* used_* and high_water_* bytes are regions, rounded up to 64, including reservations; *_slots
     * above count only products. */
    uint32_t reserved_slots;      /* not (or no longer) products */
    uint32_t high_water_occupied; /* slots, including reservations */
    uint32_t free_extents, high_water_free_extents;
    uint64_t largest_free_bytes;
    double min_residence_s;       /* from creation to eviction; -1: none yet */
    uint64_t min_residence_bytes; /* in use at that time */
    uint32_t min_residence_slots;
};
/* Fills in all counters at one moment; all zero if the queue is damaged. */
void pq_get_stats(struct pq *q, struct pq_stats *out);
/* A process that has the queue open, or died while it had it open. */
struct pq_client_info {
    int32_t pid; /* in its own PID namespace */
    bool alive, writes, self;
    uint32_t pins, reservations;
    uint64_t reserved_bytes;
};
/* Writes at most `room` of them to out; returns how many there are. */
unsigned pq_clients(struct pq *q, struct pq_client_info *out, unsigned room);

enum pq_reset_what {
    /* The machine stopped, or the file was copied, while a process had it open for writing: what
     * that process wrote may be missing. Killed processes do not cause this. */
    PQ_RESET_UNCLEAN,
    PQ_RESET_RESIDENCE /* min_residence_* */
};
/* Resets it. */
enum pq_status pq_reset(struct pq *q, enum pq_reset_what what);
/* Checks that all tables agree; returns PQ_CORRUPT if not. O(slots), under the lock. */
enum pq_status pq_check(struct pq *q);

#endif
