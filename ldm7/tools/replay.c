/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/digest.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/splitmix.h"
#include "common/tool.h"

enum { AHEAD_MAX = 256, CHUNK_BYTES = 256 * 1024, AHEAD_BYTES = 64 << 20 };

static const int64_t second_ns = 1000000000;

/* A product made or being made, not yet due. */
struct ahead {
    struct pq_reservation *r;
    uint8_t *region;
    uint64_t key;
    uint32_t size_bytes, made_bytes;
    struct pq_signature sig;
};

struct run {
    struct pq *q;
    const struct trace *t;
    const struct replay_options *o;
    struct digest *digest;
    struct ahead ring[AHEAD_MAX];
    size_t due, begun, complete; /* indices into the trace: due <= complete <= begun */
    uint64_t ahead_bytes, ahead_limit;
    size_t ahead_products_limit;
    int64_t start_ns, last_ns, next_progress_ns, progress_every_ns;
    bool terminal;
    double *late_ms;
    size_t inserted, duplicates;
    uint64_t inserted_bytes;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * second_ns + t.tv_nsec;
}

static void sleep_until(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / second_ns, .tv_nsec = ns % second_ns};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static int64_t due_ns(const struct run *r, size_t i)
{
    double ms = (double)(r->t->entries[i].time_us - r->t->entries[0].time_us) / 1000;
    return r->start_ns + (int64_t)llround(ms * 1e6 / r->o->scale);
}

static double elapsed_s(const struct run *r, int64_t now)
{
    return now <= r->start_ns ? 0 : (double)(now - r->start_ns) / 1e9;
}

static void progress(struct run *r, int64_t now)
{
    if (now < r->next_progress_ns)
        return;
    r->next_progress_ns = now + r->progress_every_ns;
    double total_s = (double)(due_ns(r, r->t->count - 1) - r->start_ns) / 1e9;
    if (r->terminal)
        fprintf(stderr, "\r%s: %zu of %zu products, %.1f of %.1f MB, %.0f of %.0f s\033[K",
                log_prog(), r->due, r->t->count, (double)r->inserted_bytes / 1e6,
                (double)r->t->total_bytes / 1e6, elapsed_s(r, now), total_s);
    else
        log_note("Progress: products=%zu of=%zu bytes=%llu elapsed_s=%.1f of_s=%.1f", r->due,
                 r->t->count, (unsigned long long)r->inserted_bytes, elapsed_s(r, now), total_s);
}

/* Makes a piece of the products to come. Returns PQ_OK: did something; PQ_END: nothing to do now;
 * PQ_FULL: there is no room for the next; else an error. */
static enum pq_status make_ahead(struct run *r)
{
    if (r->complete < r->begun) {
        struct ahead *a = &r->ring[r->complete % AHEAD_MAX];
        uint32_t n = a->size_bytes - a->made_bytes;
        if (n > CHUNK_BYTES)
            n = CHUNK_BYTES;
        splitmix_fill(a->key, a->made_bytes, a->region + a->made_bytes, n);
        if ((!a->made_bytes && !digest_begin(r->digest)) ||
            !digest_add(r->digest, a->region + a->made_bytes, n))
            return PQ_INVAL;
        a->made_bytes += n;
        if (a->made_bytes == a->size_bytes) {
            if (!digest_end(r->digest, &a->sig))
                return PQ_INVAL;
            r->complete++;
        }
        return PQ_OK;
    }
    if (r->begun == r->t->count || r->begun - r->due >= r->ahead_products_limit)
        return PQ_END;
    uint32_t size = r->t->entries[r->begun].size_bytes;
    if (r->begun > r->due && r->ahead_bytes + size > r->ahead_limit)
        return PQ_END;
    struct ahead *a = &r->ring[r->begun % AHEAD_MAX];
    void *region;
    enum pq_status s = pq_reserve(r->q, NULL, size, &region, &a->r);
    if (s)
        return s;
    a->region = region;
    a->key = splitmix_key(r->o->seed, r->begun);
    a->size_bytes = size;
    a->made_bytes = 0;
    r->ahead_bytes += size;
    r->begun++;
    return PQ_OK;
}

/* Makes products ahead until the next product's time; sleeps when that is done. */
static enum pq_status pass_time(struct run *r)
{
    int64_t due = due_ns(r, r->due);
    bool blocked = false;
    for (int64_t now = now_ns(); now < due && !tool_stop; now = now_ns()) {
        progress(r, now);
        if (!blocked) {
            enum pq_status s = make_ahead(r);
            if (s != PQ_OK && s != PQ_END && s != PQ_FULL)
                return s;
            blocked = s != PQ_OK;
            continue;
        }
        /* At most half a second: a signal may arrive just before the sleep. */
        int64_t until = due < r->next_progress_ns ? due : r->next_progress_ns;
        sleep_until(until < now + second_ns / 2 ? until : now + second_ns / 2);
    }
    return PQ_OK;
}

/* The due product must be complete now. Waits for room up to full_wait_s. */
static enum pq_status finish_due(struct run *r)
{
    int64_t began = now_ns(), next_warning = began;
    while (r->complete == r->due && !tool_stop) {
        enum pq_status s = make_ahead(r);
        int64_t now = now_ns();
        if (s == PQ_OK)
            continue;
        if (s != PQ_FULL)
            return s;
        if (now >= next_warning) {
            log_warn(
                "Queue full: readers hold the room that %u bytes need; waiting since %.0f s, at most %.0f s",
                r->t->entries[r->due].size_bytes, (double)(now - began) / 1e9, r->o->full_wait_s);
            next_warning = now + 10 * second_ns;
        }
        if ((double)(now - began) / 1e9 >= r->o->full_wait_s)
            return PQ_FULL;
        progress(r, now);
        sleep_until(now + second_ns / 100);
    }
    return PQ_OK;
}

static enum pq_status commit_due(struct run *r)
{
    struct ahead *a = &r->ring[r->due % AHEAD_MAX];
    struct pq_info info = {.feedtype = r->o->feedtype,
                           .seqno = (uint32_t)r->due,
                           .size = a->size_bytes,
                           .signature = a->sig};
    snprintf(info.origin, sizeof info.origin, "%s", r->o->origin);
    snprintf(info.ident, sizeof info.ident, "%s.%06zu", r->o->ident, r->due);
    r->last_ns = now_ns();
    double late_ms = (double)(r->last_ns - due_ns(r, r->due)) / 1e6;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    info.creation = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    enum pq_status s = pq_commit(r->q, a->r, &info, 0);
    if (s && s != PQ_DUP)
        return s;
    a->r = NULL;
    r->ahead_bytes -= a->size_bytes;
    r->due++;
    char line[PRODUCT_LINE_MAX];
    if (s == PQ_DUP) {
        r->duplicates++;
        log_warn("Duplicate product: %s", product_line_format(&info, line, sizeof line));
        return PQ_OK;
    }
    r->late_ms[r->inserted++] = late_ms;
    r->inserted_bytes += a->size_bytes;
    log_info("Inserted: %s", product_line_format(&info, line, sizeof line));
    return PQ_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(struct run *r)
{
    qsort(r->late_ms, r->inserted, sizeof *r->late_ms, by_value);
    if (r->terminal)
        fputs("\r\033[K", stderr);
    log_note("Replayed: products=%zu bytes=%llu elapsed_s=%.3f late_p50_ms=%.3f late_max_ms=%.3f",
             r->inserted, (unsigned long long)r->inserted_bytes, elapsed_s(r, r->last_ns),
             r->inserted ? r->late_ms[(r->inserted - 1) / 2] : 0,
             r->inserted ? r->late_ms[r->inserted - 1] : 0);
}

static bool all_fit(const struct trace *t, const char *name, uint64_t data_bytes)
{
    size_t bad = 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->entries[i].size_bytes > data_bytes && bad++ < TRACE_ERRORS_SHOWN)
            log_error("%s:%u: found \"%u\"; valid: at most %llu bytes, the queue's capacity", name,
                      t->entries[i].line, t->entries[i].size_bytes, (unsigned long long)data_bytes);
    return !bad;
}

int replay(struct pq *q, const struct trace *t, const struct replay_options *o)
{
    struct pq_stats stats;
    pq_get_stats(q, &stats);
    if (!all_fit(t, o->trace_name, stats.data_bytes))
        return TOOL_USAGE;
    struct run *r = xcalloc(1, sizeof *r);
    r->late_ms = xcalloc(t->count, sizeof *r->late_ms);
    r->digest = digest_new();
    if (!r->digest)
        alloc_fails(0);
    r->q = q;
    r->t = t;
    r->o = o;
    /* Only a share of the queue: what is made ahead has already evicted older products. */
    r->ahead_limit = stats.data_bytes / 8 < AHEAD_BYTES ? stats.data_bytes / 8 : AHEAD_BYTES;
    r->ahead_products_limit = stats.slots / 4 < 1           ? 1
                              : stats.slots / 4 < AHEAD_MAX ? stats.slots / 4
                                                            : AHEAD_MAX;
    r->terminal = isatty(STDERR_FILENO) && !log_enabled(LOG_LVL_INFO);
    r->progress_every_ns = (r->terminal ? 1 : 10) * second_ns;
    r->start_ns = r->last_ns = now_ns() + (int64_t)(o->start_delay_s * 1e9);
    r->next_progress_ns = now_ns() + r->progress_every_ns;

    enum pq_status s = PQ_OK;
    while (r->due < t->count && !tool_stop && !s) {
        s = pass_time(r);
        if (!s && !tool_stop)
            s = finish_due(r);
        if (!s && !tool_stop)
            s = commit_due(r);
    }
    int e = errno;
    for (size_t i = r->due; i < r->begun; i++)
        pq_discard(q, r->ring[i % AHEAD_MAX].r);
    report(r);
    int code = r->duplicates ? TOOL_DUPLICATE : TOOL_OK;
    if (s) {
        errno = e;
        log_error("Product %zu of %zu (%u bytes) cannot be inserted: %s", r->due + 1, t->count,
                  t->entries[r->due].size_bytes, pq_strerror(s));
        code = TOOL_SYSTEM;
    } else if (tool_stop && r->due < t->count) {
        log_note("Stopped by signal %d after %zu of %zu products", tool_stop, r->due, t->count);
    }
    free(r->late_ms);
    digest_free(r->digest);
    free(r);
    return code;
}
