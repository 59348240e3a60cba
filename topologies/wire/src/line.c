/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <string.h>

#include "identity.h"

/* splitmix64 (S. Vigna, public domain): one word of state; any seed works. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double next_uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1.0p-53;
}

void line_init(struct line *line, int64_t delay_ns, int64_t jitter_ns, double loss, uint64_t seed)
{
    memset(line, 0, sizeof *line);
    line->delay_ns = delay_ns;
    line->jitter_ns = jitter_ns;
    line->loss = loss;
    line->seed = seed;
    line->rng = seed;
}

int64_t line_head(struct line *line, int64_t arrival_ns, int64_t now_ns)
{
    if (line->head_known)
        return line->head_due_ns;
    if (arrival_ns > now_ns)
        arrival_ns = now_ns;
    int64_t due = arrival_ns + line->delay_ns;
    if (line->jitter_ns > 0) {
        due += (int64_t)((2.0 * next_uniform(&line->rng) - 1.0) * (double)line->jitter_ns);
        if (due < line->last_due_ns)
            due = line->last_due_ns;
        /* After the clock was set back, the previous due time must not delay the line. */
        if (due > arrival_ns + line->delay_ns + line->jitter_ns)
            due = arrival_ns + line->delay_ns + line->jitter_ns;
    }
    line->head_due_ns = due;
    line->head_known = true;
    return due;
}

bool line_loses(struct line *line, const uint8_t *frame, size_t size_bytes)
{
    uint32_t hash = 0;
    if (line->loss <= 0.0)
        return false;
    if (identity_hash(frame, size_bytes, line->seed, &hash))
        return (double)hash < line->loss * 0x1.0p32;
    return next_uniform(&line->rng) < line->loss;
}

void line_pop(struct line *line)
{
    line->last_due_ns = line->head_due_ns;
    line->head_known = false;
}

void line_count(struct line *line, enum line_outcome outcome, int64_t due_ns, int64_t now_ns,
                size_t size_bytes)
{
    struct line_stats *s = &line->stats;
    switch (outcome) {
    case LINE_LOST: s->lost++; return;
    case LINE_QUEUE_DROPPED: s->queue_dropped++; return;
    case LINE_SEND_FAILED: s->send_failed++; return;
    case LINE_TRUNCATED: s->truncated++; return;
    case LINE_SENT: break;
    }
    s->frames++;
    s->bytes += size_bytes;
    uint64_t late_ns = now_ns > due_ns ? (uint64_t)(now_ns - due_ns) : 0;
    if (late_ns > s->late_max_ns)
        s->late_max_ns = late_ns;
    s->lateness[lateness_bucket(late_ns / 1000)]++;
}

/* One bucket for each of 0..127 us, then 64 buckets per power of two. */
size_t lateness_bucket(uint64_t us)
{
    if (us < 128)
        return (size_t)us;
    unsigned shift = 0;
    while ((us >> shift) >= 128)
        shift++;
    size_t bucket = 128 + (size_t)(shift - 1) * 64 + (size_t)((us >> shift) - 64);
    return bucket < LATENESS_BUCKETS ? bucket : LATENESS_BUCKETS - 1;
}

uint64_t lateness_bucket_top_us(size_t bucket)
{
    if (bucket < 128)
        return bucket;
    unsigned shift = (unsigned)((bucket - 128) / 64) + 1;
    uint64_t base = (bucket - 128) % 64 + 64;
    return ((base + 1) << shift) - 1;
}

double line_lateness_us(const struct line *line, double q)
{
    const struct line_stats *s = &line->stats;
    if (s->frames == 0)
        return 0.0;
    uint64_t rank = (uint64_t)(q * (double)s->frames);
    if (rank >= s->frames)
        rank = s->frames - 1;
    double max_us = (double)s->late_max_ns / 1000.0;
    uint64_t seen = 0;
    for (size_t i = 0; i < LATENESS_BUCKETS; i++) {
        seen += s->lateness[i];
        if (seen > rank) {
            double top_us = (double)lateness_bucket_top_us(i);
            return top_us < max_us ? top_us : max_us;
        }
    }
    return max_us;
}

bool line_is_watched(const struct line *line, bool any_waiting)
{
    if (line->head_known)
        return false;
    return !any_waiting || line->delay_ns - line->jitter_ns < WATCHED_BELOW_NS;
}

int64_t lines_next_wake(const struct line *lines, size_t n, int64_t now_ns, int64_t last_wake_ns,
                        int64_t gap_ns)
{
    int64_t wake = INT64_MAX;
    bool any_waiting = false;
    for (size_t i = 0; i < n; i++) {
        if (!lines[i].head_known)
            continue;
        any_waiting = true;
        if (lines[i].head_due_ns < wake)
            wake = lines[i].head_due_ns;
    }
    if (!any_waiting)
        return INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        if (lines[i].head_known || line_is_watched(&lines[i], true))
            continue;
        int64_t earliest = now_ns + lines[i].delay_ns - lines[i].jitter_ns;
        if (earliest < wake)
            wake = earliest;
    }
    return wake > last_wake_ns + gap_ns ? wake : last_wake_ns + gap_ns;
}
