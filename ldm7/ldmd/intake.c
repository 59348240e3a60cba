/* SPDX-License-Identifier: Apache-2.0 */
#include "intake.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "common/digest.h"
#include "common/log.h"
#include "common/log_peer.h"
#include "common/product_line.h"

#define WARN_S 60
#define AHEAD_S 60 /* correct clocks may differ by less */

struct ldm_time wall_time(double ago_s)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    double at = (double)t.tv_sec + (double)t.tv_nsec / 1e9 - ago_s;
    if (at < 0)
        at = 0;
    if (at > UINT32_MAX)
        at = UINT32_MAX;
    return (struct ldm_time){(uint32_t)at, (int32_t)((at - (double)(int64_t)at) * 1e6)};
}

struct ldm_time info_time(const struct pq_info *info)
{
    return (struct ldm_time){(uint32_t)info->creation.tv_sec, (int32_t)info->creation.tv_usec};
}

void origin_stamp(struct pq_info *info, const char *host)
{
    char *via = strstr(info->origin, "_v_");

    if (via)
        *via = '\0';
    char text[PQ_ORIGIN_MAX + 1 + 3 + 256];
    snprintf(text, sizeof text, "%s_v_%s", info->origin, host);
    text[PQ_ORIGIN_MAX] = '\0';
    memcpy(info->origin, text, sizeof info->origin);
}

int intake_class(struct intake *in, const struct ldm_class *cls, char *why, size_t why_bytes)
{
    matcher_free(&in->match);
    return matcher_init(&in->match, cls, why, why_bytes);
}

void intake_free(struct intake *in)
{
    intake_abort(in);
    matcher_free(&in->match);
}

static void passed(struct intake *in)
{
    in->last = in->info;
    in->have_last = in->last_changed = true;
}

static uint64_t mono_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_too_old(const struct intake *in, const struct pq_info *info)
{
    return ldm_time_cmp(info_time(info), wall_time(in->max_latency_s)) < 0;
}

/* Returns true at most once a minute. */
static bool may_warn(time_t *last_s)
{
    struct timespec mono;
    clock_gettime(CLOCK_MONOTONIC, &mono);
    if (*last_s != 0 && mono.tv_sec < *last_s + WARN_S)
        return false;
    *last_s = mono.tv_sec;
    return true;
}

/* A wrong clock makes products seem to come from the future. */
static void warn_ahead(struct intake *in, const struct pq_info *info)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    if (info->creation.tv_sec <= wall.tv_sec + AHEAD_S)
        return;
    in->ahead++;
    if (may_warn(&in->warned_ahead_s))
        log_warn("%" PRIu64
                 " products made in the future, the last one by %.0f s: is the clock of this "
                 "host or of the product's origin wrong? %s",
                 in->ahead, (double)info->creation.tv_sec - (double)wall.tv_sec, info->ident);
}

/* A wrong clock makes every product too old. */
static void warn_too_old(struct intake *in, const struct pq_info *info)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    in->too_old++;
    if (may_warn(&in->warned_s))
        log_warn("%" PRIu64
                 " products ignored as too old, the last one by %.0f s of age: found more than "
                 "ldm6.max_latency_s %.0f; is the clock of this host or of the product's origin "
                 "wrong? %s",
                 in->too_old, (double)wall.tv_sec - (double)info->creation.tv_sec,
                 in->max_latency_s, info->ident);
}

/* Reserves space for the product; NULL if it is not wanted. */
static void vet(struct intake *in)
{
    const struct pq_info *info = &in->info;
    void *at = NULL;

    char line[PRODUCT_LINE_MAX];
    product_line_format(info, line, sizeof line);
    bool old = is_too_old(in, info);
    if (old || !matcher_wants(&in->match, info)) {
        if (old)
            warn_too_old(in, info);
        log_info("ignored (%s): %s", old ? "too old" : "not requested", line);
        in->ignored++;
        passed(in);
        return;
    }
    enum pq_status st = pq_reserve(in->queue, &info->signature, info->size, &at, &in->reservation);
    if (st == PQ_OK) {
        warn_ahead(in, info);
        in->region = at;
        uint64_t up_to;
        pq_room_asked(in->queue, &up_to); /* an earlier request does not concern this one */
        in->stalled = (struct stalled){.began_ns = mono_ns()};
        return;
    }
    in->reservation = NULL;
    if (st == PQ_DUP) {
        log_info("duplicate: %s", line);
        in->duplicates++;
        passed(in);
        return;
    }
    log_peer_warn(in->from, "ignored: %s: %s", pq_strerror(st), line);
    in->ignored++;
}

static void start(struct intake *in, const struct pq_info *info)
{
    if (in->coming)
        log_peer_warn(in->from, "incomplete product dropped: %s", in->info.ident);
    intake_abort(in);
    in->info = *info;
    in->region = NULL;
    in->received = 0;
    vet(in);
}

void intake_begin(struct intake *in, const struct pq_info *info, uint8_t **region)
{
    start(in, info);
    *region = in->region;
    in->block_size = info->size;
}

bool intake_coming(struct intake *in, const struct pq_info *info)
{
    start(in, info);
    in->coming = in->reservation;
    return in->coming;
}

bool intake_block(struct intake *in, const struct ldm_block *b, uint8_t **region)
{
    *region = NULL;
    in->block_size = 0;
    if (!in->coming) {
        log_info("block of an unrequested product");
        return true;
    }
    if (memcmp(&b->signature, &in->info.signature, sizeof b->signature) != 0 ||
        b->size > in->info.size - in->received)
        return false;
    in->block_size = b->size;
    *region = in->region + in->received;
    return true;
}

static bool is_forged(const struct intake *in)
{
    struct pq_signature is;

    return in->verify && (!digest_of(in->region, in->info.size, &is) ||
                          memcmp(&is, &in->info.signature, sizeof is) != 0);
}

/* With this signature it would keep out the true product. */
static void refuse_forged(struct intake *in)
{
    char line[PRODUCT_LINE_MAX];

    log_peer_warn(in->from, "%s: digest differs from the signature: %s", in->from,
                  product_line_format(&in->info, line, sizeof line));
    pq_discard(in->queue, in->reservation);
    in->reservation = NULL;
    in->coming = false;
    in->forged++;
    in->ignored++;
    passed(in);
}

static void dh_saveProd(struct intake *in)
{
    struct pq_info as_stored = in->info;

    origin_stamp(&as_stored, in->from);
    enum pq_status st = pq_commit(in->queue, in->reservation, &as_stored, 0);
    char line[PRODUCT_LINE_MAX];
    if (st == PQ_OK) {
        in->accepted++;
        log_info("Inserted: %s", product_line_format(&as_stored, line, sizeof line));
    } else if (st == PQ_DUP) {
        in->duplicates++;
    } else {
        log_error("cannot insert: %s: %s", pq_strerror(st),
                  product_line_format(&as_stored, line, sizeof line));
        pq_discard(in->queue, in->reservation);
    }
    in->reservation = NULL;
    in->coming = false;
    if (st == PQ_OK || st == PQ_DUP)
        passed(in);
}

void intake_end(struct intake *in)
{
    in->received += in->block_size;
    in->block_size = 0;
    if (!in->reservation || in->received != in->info.size)
        return;
    if (is_forged(in))
        refuse_forged(in);
    else
        dh_saveProd(in);
}

void intake_abort(struct intake *in)
{
    if (in->reservation)
        pq_discard(in->queue, in->reservation);
    in->reservation = NULL;
    in->coming = false;
}

bool intake_must_go(struct intake *in, uint64_t last_in_ns, uint64_t now_ns)
{
    uint64_t up_to;

    if (!in->reservation ||
        !stalled_must_go(&in->stalled, pq_room_asked(in->queue, &up_to), last_in_ns, now_ns))
        return false;
    log_peer_warn(in->from,
                  "%s: a stalled product of %u bytes was dropped to make room in the full queue; "
                  "disconnected: %s",
                  in->from, in->info.size, in->info.ident);
    return true;
}
