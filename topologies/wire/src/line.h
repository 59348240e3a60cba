/* SPDX-License-Identifier: Apache-2.0
 *
 * One direction of a delayed link, without any input or output: given the arrival time of each
 * frame it says when the frame is due, given the frame whether it is lost, and keeps the
 * statistics. Times are nanoseconds of one clock (the relay uses CLOCK_REALTIME, the clock of the
 * kernel's arrival stamps); nothing here reads a clock.
 *
 * Frames keep their order: with jitter a frame is due no earlier than the one before it.
 */
#ifndef WIRE_LINE_H
#define WIRE_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LATENESS_BUCKETS = 2048 };

struct line_stats {
    uint64_t frames;           /* sent on */
    uint64_t bytes;            /* of these, without FCS, with their VLAN tags */
    uint64_t lost;             /* dropped on purpose with the line's loss probability */
    uint64_t queue_dropped;    /* refused by the outgoing interface's queueing discipline */
    uint64_t ring_dropped;     /* arrived while the receive ring was full */
    uint64_t send_failed;      /* other failures of sending */
    uint64_t truncated;        /* longer than a slot of the ring; dropped */
    uint64_t partial_checksum; /* left to be completed by an offload: the receiver will refuse it */
    uint64_t late_max_ns;
    uint32_t lateness[LATENESS_BUCKETS]; /* histogram, see lateness_bucket() */
};

struct line {
    int64_t delay_ns;
    int64_t jitter_ns; /* uniform in [-jitter, +jitter] */
    double loss;       /* probability 0..1 */
    uint64_t seed;
    uint64_t rng;        /* of jitter, and of the loss of frames without IPv4 */
    int64_t head_due_ns; /* valid while head_known */
    int64_t last_due_ns;
    bool head_known;
    struct line_stats stats;
};

/* An empty line. loss: probability from 0 to 1; seed: of losses and jitter. */
void line_init(struct line *line, int64_t delay_ns, int64_t jitter_ns, double loss, uint64_t seed);

/* Due time of the frame at the head, which arrived at `arrival_ns`. Draws jitter at the first
 * call for a frame; the same answer until line_pop(). An arrival later than `now_ns` (the
 * clock was set back) counts as now. */
int64_t line_head(struct line *line, int64_t arrival_ns, int64_t now_ns);

/* True if this frame must be dropped instead of sent. Ask once per frame: of IPv4 packets
 * the seed and the packet's identity decide (identity.h), of others, such as ARP, a die. */
bool line_loses(struct line *line, const uint8_t *frame, size_t size_bytes);

enum line_outcome { LINE_SENT, LINE_LOST, LINE_QUEUE_DROPPED, LINE_SEND_FAILED, LINE_TRUNCATED };

/* Takes the head off. `now_ns` is the time of the attempt, `due_ns` what line_head said. */
void line_count(struct line *line, enum line_outcome outcome, int64_t due_ns, int64_t now_ns,
                size_t size_bytes);
/* The head is done with: the next call of line_head is about another frame. */
void line_pop(struct line *line);

/* The q-quantile (0..1) of the lateness of the frames sent, in microseconds, rounded up to the
 * histogram's resolution (1 us below 128 us, 1/64 above). */
double line_lateness_us(const struct line *line, double q);

/* The histogram's bucket of a lateness. */
size_t lateness_bucket(uint64_t us);
/* The largest lateness in a bucket. */
uint64_t lateness_bucket_top_us(size_t bucket);

#define WATCHED_BELOW_NS INT64_C(2000000)
/* When the relay must look at its lines again.
 *
 * A line with frames waiting must be served when its head is due. An empty line need not be
 * watched as long as we look again before a frame arriving now could be due; a line whose delay is
 * below WATCHED_BELOW_NS is watched instead (the caller polls its socket).
 *
 * Returns the time, or INT64_MAX if all lines are empty (then wait for any arrival). Never earlier
 * than last_wake_ns + gap_ns, which bounds the wake-ups per second. */
int64_t lines_next_wake(const struct line *lines, size_t n, int64_t now_ns, int64_t last_wake_ns,
                        int64_t gap_ns);
/* True if the caller must poll this line's socket. */
bool line_is_watched(const struct line *line, bool any_waiting);

#endif
