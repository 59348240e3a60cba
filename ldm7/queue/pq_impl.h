/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the product queue. Not for users of pq.h.
 *
 * The file consists of these parts, each 64-byte aligned, with sizes that follow from (data_bytes,
 * slots):
 *   header | locks | clients | pin bitmaps | slots | nodes | hash cells | order cells | marks |
 *   scratch | data
 *
 * Authoritative are a slot's state, region (offset, bytes), seq, owner and info, the bitmaps and
 * the clients' mutexes. Everything else (nodes, hash, order, marks, usage counters, what a client
 * holds) is derived; pq_rebuild() restores it when a process died inside the critical section.
 * Therefore the order of stores around `state` matters: region before RESERVED, seq and info before
 * COMMITTED, EMPTY before the room is reused. A process can die between any two instructions, and
 * the others see all stores before that point. So only the compiler's order must be enforced
 * (pq_barrier), not the processor's.
 */
#ifndef PQ_IMPL_H
#define PQ_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "pq.h"

#define PQ_UNIT 64u /* regions begin and end on these boundaries */
#define PQ_CHUNK (UINT64_C(256) << 10)
#define PQ_CLIENTS 512u /* most open handles of all processes together */
#define PQ_SLOTS_MAX (1u << 24)
#define PQ_DATA_MAX (UINT64_C(1) << 46)
#define PQ_NONE UINT32_MAX
#define PQ_LISTENER_NAME "pq-listener"
#define PQ_VERSION 3u
#define PQ_RUN_LOCKS 64u  /* processes that may begin a run at a time, see pq_run.c */
#define PQ_MARK_LEVELS 5u /* 64^5 >= the order cells of PQ_SLOTS_MAX */
#define PQ_SPARE_NONE UINT64_MAX

enum slot_state { SLOT_EMPTY, SLOT_RESERVED, SLOT_COMMITTED, SLOT_DOOMED };

struct pq_slot {
    _Atomic uint32_t state;
    uint32_t owner;         /* client, while RESERVED */
    uint64_t offset, bytes; /* region in the data area, multiples of PQ_UNIT */
    uint64_t seq;
    int64_t inserted_us; /* CLOCK_REALTIME */
    int64_t order_us;    /* the same, but never less than that of an older product */
    uint32_t data_offset;
    uint32_t pins; /* derived: clients that pin it */
    uint32_t older,
        newer; /* derived: neighbors in insertion order; while RESERVED: in the owner's list */
    struct pq_info info;
};

/* The data area as a list of adjacent extents in order of address. Node i < slots is the region of
 * slot i; the others are free extents (never two in a row). */
struct pq_node {
    uint64_t offset, bytes;
    uint32_t before, after;
};

/* A handle of some process. `alive` is a robust mutex that its owner keeps locked: the kernel
 * reports its death, even across PID namespaces and after reuse of the PID. */
struct pq_client {
    pthread_mutex_t alive;
    uint32_t used;
    uint32_t writes;         /* may insert */
    int32_t pid;             /* for display */
    uint32_t pins;           /* derived: bits in its bitmap, none while unused */
    uint32_t first_reserved; /* derived: a list of its slots, linked by older and newer */
};

struct pq_run_lock {
    _Alignas(64) pthread_mutex_t mutex; /* robust, process-shared */
};

struct pq_header {
    char magic[8];
    uint32_t version, byte_order;
    uint32_t header_bytes, slot_bytes, node_bytes, client_bytes, clients;
    uint32_t slots, nodes, hash_cells, order_cells, mark_words;
    uint64_t data_bytes, file_bytes;
    uint64_t hash_key[2];
    /* Which machine run and which file the mutexes belong to (pq_run.c): after a reboot, or in a
     * copy of the file, no process can hold them. */
    _Atomic uint64_t run;    /* also says which of the locks is the queue's */
    _Atomic uint64_t claims; /* also says how many of the locks are taken */
    uint64_t ready_run;      /* the run for which the tables were prepared */
    /* The file's modification time (ns) as the last handle left it; 0: in use, or left dirty. */
    _Atomic int64_t left_ns;
    /* left_ns as an arriving handle found it while the file was untouched. */
    _Atomic int64_t seen_ns;
    uint32_t suspect; /* pq_check() found that the tables disagree: the next handle also checks */

    /* Futex word: bit 0: a process waits; the others change with every insertion and when room is
     * requested. */
    _Atomic uint32_t wake;
    /* Requests for room (pq_room.c): how many, and for which products, by position. */
    _Atomic uint32_t asks;
    /* Futex word: bit 0: a process waits for room; the others change with it. */
    _Atomic uint32_t room;
    _Atomic uint64_t asked_up_to;
    uint32_t unclean; /* the machine stopped, or the file was copied, while writers were open */
    _Atomic uint64_t last_seq;
    int64_t last_order_us;
    uint64_t inserted, evicted, removed, duplicates, recoveries;
    uint64_t high_water_bytes;
    uint32_t high_water_slots, high_water_free_nodes, high_water_used;
    int64_t min_residence_us; /* from creation to eviction; -1: none evicted yet */
    uint64_t min_residence_bytes;
    uint32_t min_residence_slots;
    /* derived */
    uint32_t first_node, cursor;   /* cursor: where to look for the next region; PQ_NONE: end */
    uint32_t free_slot, free_node; /* stacks, linked by `newer` and `after` */
    uint32_t oldest, newest;
    uint32_t used_slots; /* not EMPTY */
    uint32_t products;   /* COMMITTED */
    uint32_t free_nodes; /* free extents in the list */
    /* Room was skipped because a process holds it: check whether it is alive. */
    uint32_t reclaim_due;
    uint32_t looks; /* handles that checked all slots on their arrival */
    uint64_t used_bytes;
};

struct pq_reservation {
    struct pq_reservation *prev, *next;
    uint32_t slot;
    uint64_t region_bytes; /* as requested */
};

struct pq {
    int fd;
    bool writable;
    pid_t pid; /* of the process that opened it */
    uint8_t *map;
    size_t map_bytes;
    struct pq_header *h;
    struct pq_run_lock *locks;
    pthread_mutex_t *mutex; /* the queue's lock: one of these */
    uint64_t run;           /* the machine run and file in which this handle was opened */
    struct pq_client *clients;
    uint64_t *bitmaps; /* [client][bitmap_words] */
    size_t bitmap_words;
    struct pq_slot *slots;
    struct pq_node *nodes;
    uint32_t *hash;  /* slot + 1; 0: empty */
    uint32_t *order; /* [seq % order_cells]: slot + 1 */
    /* Level 0: a bit for each used order cell; above: for each word. */
    uint64_t *marks[PQ_MARK_LEVELS];
    uint32_t mark_words[PQ_MARK_LEVELS], mark_levels;
    uint32_t *scratch; /* [slots], for pq_rebuild */
    uint8_t *data;
    uint32_t client;
    uint32_t *my_pins; /* [slots]: views that this handle has given out */
    size_t my_pins_bytes;
    uint64_t *mapped; /* a bit for each PQ_CHUNK of data whose pages were requested */
    struct pq_reservation *reservations;
    uint64_t committed_seq; /* position of this handle's last product */
    uint64_t steps;         /* cells and words that lookups have read */
    unsigned patience_ms;   /* how long it waits for room */
    uint64_t vain_until_ms; /* until then it does not wait, because waiting brought no room */
    uint32_t asks_seen;

    int event_fd; /* -1: no listener thread */
    pthread_t listener;
    _Atomic bool listener_stops;
};

struct pq_layout {
    uint64_t locks, clients, bitmaps, slots, nodes, hash, order, marks, scratch, data, file_bytes;
    uint32_t node_count, hash_cells, order_cells, mark_words, mark_levels;
    uint64_t data_bytes; /* rounded up */
    size_t bitmap_words;
};

/* pq_file.c */
bool pq_layout_of(uint64_t data_bytes, uint32_t slots, struct pq_layout *out);
/* Takes the lock; recovers the tables if its holder died. Returns PQ_CORRUPT, PQ_SYSTEM. */
enum pq_status pq_lock(struct pq *q);
/* Releases it. */
void pq_unlock(struct pq *q);

/* pq_run.c */
/* Finds the queue's lock; makes it if this is the first handle of a run. Sets q->run and q->mutex.
 * Returns 0 or an errno value. */
int pq_run_join(struct pq *q);
/* Does the same for a file that no other process can have opened yet. */
int pq_run_begin(struct pq *q);
/* Call this before the handle touches the file: records whether something else did. Returns
 * left_ns. */
int64_t pq_arrive(struct pq *q);
/* Under the lock, before this handle enters: returns whether the tables need no check. left_ns is
 * what pq_arrive() returned. */
bool pq_trusted(struct pq *q, int64_t left_ns);
/* Under the lock: this handle is the last. Until some program changes the file, its tables need no
 * check. */
void pq_leave_clean(struct pq *q);
/* Call this after releasing the lock: returns whether the file was touched meanwhile. */
bool pq_left_touched(const struct pq *q);

/* pq_region.c: all under the lock */
uint64_t pq_round_up(uint64_t bytes);
/* Takes a slot and a region of that many bytes; old products make room. */
enum pq_status pq_region_take(struct pq *q, uint64_t bytes, uint32_t owner, uint32_t *slot);
/* Frees the region of a slot and the slot. */
void pq_region_free(struct pq *q, uint32_t slot);
/* Drops a product to make room, and counts it. */
void pq_evict(struct pq *q, uint32_t slot);
/* Removes it from the queue, and frees its room at once or when the last pin is released. */
void pq_drop(struct pq *q, uint32_t slot);
/* Returns the size of the largest free extent in bytes. */
uint64_t pq_largest_free(const struct pq *q);

/* pq_room.c */
struct pq_wait {
    uint64_t began_ms, until_ms;
    unsigned step;
    uint32_t word;
};
/* Under the lock, after PQ_FULL: asks processes that hold room. Returns false if waiting (longer)
 * is useless. */
bool pq_room_ask(struct pq *q, struct pq_wait *w);
/* Without the lock: waits until there may be room. */
void pq_room_wait(struct pq *q, const struct pq_wait *w);
/* Under the lock: room has become free or evictable. */
void pq_room_made(struct pq *q);

/* pq_index.c: all under the lock */
uint32_t pq_hash_find(const struct pq *q, const struct pq_signature *sig);
/* Adds a committed slot to hash and order. */
void pq_index_add(struct pq *q, uint32_t slot);
/* Removes it again. */
void pq_index_remove(struct pq *q, uint32_t slot);
/* Returns the oldest product with a position > seq, or PQ_NONE. */
uint32_t pq_index_after(struct pq *q, uint64_t seq);
/* Returns the product at this position, or PQ_NONE. */
uint32_t pq_index_at(const struct pq *q, uint64_t seq);
/* Returns the highest position such that all products up to it are older than this time. */
uint64_t pq_index_before_time(struct pq *q, int64_t us);
/* Empties hash, order and marks. */
void pq_index_clear(struct pq *q);
/* Returns whether each bit is set exactly if there is something below it. */
bool pq_marks_agree(const struct pq *q);

/* pq_recover.c: all under the lock */
void pq_rebuild(struct pq *q);
/* Returns whether all derived tables agree with the slots. */
bool pq_verify(const struct pq *q);

/* pq_client.c: all under the lock */
enum pq_status pq_client_enter(struct pq *q);
/* Gives up this handle's place. */
void pq_client_leave(struct pq *q);
/* Reclaims what dead clients held. Returns how many there were. */
unsigned pq_client_reclaim(struct pq *q);
/* Returns whether a living process has the queue open. */
bool pq_client_lives(struct pq *q);
/* Assigns the slot, now RESERVED, to its owner; pq_disown() ends that. */
void pq_own(struct pq *q, uint32_t slot);
void pq_disown(struct pq *q, uint32_t slot);
/* The slot remains until it is unpinned. */
void pq_pin(struct pq *q, uint32_t slot);
/* Frees the region if this was the last pin of a dropped product. */
void pq_unpin(struct pq *q, uint32_t slot);
/* Initializes n robust mutexes between processes, `stride` bytes apart. Returns 0 or an errno
 * value. */
int pq_shared_mutexes_init(void *first, unsigned n, size_t stride);

/* pq_notify.c */
void pq_announce(struct pq *q); /* under the lock */
/* Wakes all that wait for an insertion. */
void pq_wake(struct pq *q);
/* Ends this handle's thread. */
void pq_notify_stop(struct pq *q);

/* Reads the slot's state, before anything else in it is read. */
static inline uint32_t pq_state(const struct pq_slot *s)
{
    return atomic_load_explicit(&s->state, memory_order_acquire);
}

/* The compiler moves no store across this. */
static inline void pq_barrier(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* Sets the state, after everything else in the slot was written. */
static inline void pq_set_state(struct pq_slot *s, enum slot_state state)
{
    pq_barrier();
    atomic_store_explicit(&s->state, (uint32_t)state, memory_order_release);
    pq_barrier();
}

/* Returns whether the node is a free extent, not a slot's region. */
static inline bool pq_is_free_node(const struct pq *q, uint32_t node)
{
    return node >= q->h->slots;
}

#endif
