/* SPDX-License-Identifier: Apache-2.0
 *
 * One direction of a delayed link, without any I/O: from each frame's arrival time it computes when
 * the frame is due, from the frame whether it is lost, and it keeps the statistics. Times are
 * nanoseconds of one clock (the relay uses CLOCK_REALTIME, the clock of the kernel's arrival
 * timestamps); nothing here reads a clock.
 *
 * Frames keep their order: with jitter a frame is due no earlier than its predecessor.
 */
#ifndef WIRE_LINE_H
#define WIRE_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LATENESS_BUCKETS = 2048 };

struct line_stats {
    uint64_t frames;           /* forwarded */
    uint64_t bytes;            /* bytes of these, without FCS, with VLAN tags */
    uint64_t lost;             /* dropped on purpose with the line's loss probability */
    uint64_t queue_dropped;    /* refused by the outgoing interface's queueing discipline */
    uint64_t ring_dropped;     /* arrived while the receive ring was full */
    uint64_t send_failed;      /* other send failures */
    uint64_t truncated;        /* dropped because longer than a slot of the ring */
    uint64_t partial_checksum; /* checksum left to an offload: the receiver will discard it */
    uint64_t late_max_ns;
    uint32_t lateness[LATENESS_BUCKETS]; /* histogram, see lateness_bucket() */
};

struct line {
    int64_t delay_ns;
    int64_t jitter_ns; /* uniform in [-jitter, +jitter] */
    double loss;       /* probability 0..1 */
    uint64_t seed;
    uint64_t rng;        /* for jitter, and for the loss of frames without IPv4 */
    int64_t head_due_ns; /* valid if head_known */
    int64_t last_due_ns;
    bool head_known;
    struct line_stats stats;
};

/* Initializes an empty line. loss: probability from 0 to 1; seed: for losses and jitter. */
void line_init(struct line *line, int64_t delay_ns, int64_t jitter_ns, double loss, uint64_t seed);

/* Returns the due time of the frame at the head, which arrived at `arrival_ns`. The first call for
 * a frame draws its jitter; later calls return the same time until line_pop(). An arrival later
 * than `now_ns` (the clock was set back) counts as now. */
int64_t line_head(struct line *line, int64_t arrival_ns, int64_t now_ns);

/* Returns whether to drop this frame instead of sending it. Call it once per frame: for IPv4
 * packets the seed and the packet's identity decide (identity.h), for others, such as ARP,
 * chance. */
bool line_loses(struct line *line, const uint8_t *frame, size_t size_bytes);

enum line_outcome { LINE_SENT, LINE_LOST, LINE_QUEUE_DROPPED, LINE_SEND_FAILED, LINE_TRUNCATED };

/* Counts the outcome for the frame at the head. `now_ns` is the time of the attempt, `due_ns` the
 * time that line_head() returned. */
void line_count(struct line *line, enum line_outcome outcome, int64_t due_ns, int64_t now_ns,
                size_t size_bytes);
/* Removes the head: the next call of line_head() is about another frame. */
void line_pop(struct line *line);

/* Returns the q-quantile (0..1) of the lateness of the frames sent, in microseconds, rounded up to
 * the histogram's resolution (1 us below 128 us, 1/64 above). */
double line_lateness_us(const struct line *line, double q);

/* Returns the histogram's bucket of a lateness. */
size_t lateness_bucket(uint64_t us);
/* Returns the largest lateness in a bucket. */
uint64_t lateness_bucket_top_us(size_t bucket);

#define WATCHED_BELOW_NS INT64_C(2000000)
/* Returns when the relay must look at its lines again.
 *
 * A line with frames waiting must be served when its head is due. An empty line need not be watched
 * as long as the relay looks again before a frame arriving now could be due. A line whose delay is
 * below WATCHED_BELOW_NS is watched instead (the caller polls its socket).
 *
 * Returns INT64_MAX if all lines are empty (then wait for any arrival), and never a time earlier
 * than last_wake_ns + gap_ns, which bounds the wake-ups per second. */
int64_t lines_next_wake(const struct line *lines, size_t n, int64_t now_ns, int64_t last_wake_ns,
                        int64_t gap_ns);
/* Returns whether the caller must poll this line's socket. */
bool line_is_watched(const struct line *line, bool any_waiting);

#endif
