/* SPDX-License-Identifier: Apache-2.0
 *
 * Products that an LDM6 sends us, by HEREIS or by COMINGSOON and BLKDATA: which are wanted, and
 * their way into the product queue (LDM-6.15.0 down6). Used by a downstream and by the server that
 * accepts HIYA. No I/O except with the queue.
 */
#ifndef LDMD_INTAKE_H
#define LDMD_INTAKE_H

#include <time.h>

#include "match.h"
#include "stalled.h"

struct intake {
    struct pq *queue;
    const char *from; /* the sender's host, for the origin */
    double max_latency_s;
    bool verify;          /* the data must match the digest in the signature */
    struct matcher match; /* what is wanted */
    /* the product that is arriving */
    struct pq_info info;
    struct pq_reservation *reservation; /* NULL: none, or its bytes are discarded */
    struct stalled stalled;
    uint8_t *region;
    bool coming; /* announced and wanted: BLKDATA follow */
    uint32_t received, block_size;
    /* the last product, as sent, that was inserted or not needed: where to resume */
    bool have_last, last_changed;
    struct pq_info last;
    uint64_t accepted, duplicates, ignored;
    uint64_t too_old; /* number ignored as too old */
    uint64_t forged;  /* likewise: their data have another digest */
    uint64_t ahead;   /* created later than now, by this host's clock */
    time_t warned_s;  /* CLOCK_MONOTONIC of the last warning of it; 0: none yet */
    time_t warned_ahead_s;
};

/* Sets the pattern and class of what is wanted. Returns -1 if a pattern is invalid; why says which.
 * Keeps everything else. */
int intake_class(struct intake *in, const struct ldm_class *cls, char *why, size_t why_bytes);
/* Gives up what is being received and frees the patterns. */
void intake_free(struct intake *in);

/* HEREIS: sets *region to NULL if it is not wanted. */
void intake_begin(struct intake *in, const struct pq_info *info, uint8_t **region);
/* COMINGSOON: returns whether the product is wanted. */
bool intake_coming(struct intake *in, const struct pq_info *info);
/* BLKDATA. Returns false on a violation (not of the announced product). */
bool intake_block(struct intake *in, const struct ldm_block *b, uint8_t **region);
/* The HEREIS or BLKDATA is complete. */
void intake_end(struct intake *in);
/* The remaining bytes will not arrive. */
void intake_abort(struct intake *in);

/* Returns whether the queue is full and the arriving product stalls. Then the connection must end;
 * this logs why. last_in_ns: when anything last arrived. */
bool intake_must_go(struct intake *in, uint64_t last_in_ns, uint64_t now_ns);

/* Writes <creator>_v_<host>, cut to the maximum length of an origin. */
void origin_stamp(struct pq_info *info, const char *host);
/* Returns the wall clock's time that many seconds ago; not before 1970. */
struct ldm_time wall_time(double ago_s);
/* Returns the product's creation time. */
struct ldm_time info_time(const struct pq_info *info);

#endif
