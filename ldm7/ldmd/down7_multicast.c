/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>
#include <stdlib.h>

#include "common/alloc.h"
#include "common/log.h"
#include "common/product_line.h"
#include "down7.h"
#include "fmtp_events.h"
#include "qlog.h"

bool down7_md5_differs(const struct pq_info *info, const uint8_t *data)
{
    unsigned n = 0;

    uint8_t digest[EVP_MAX_MD_SIZE];
    return EVP_Digest(data, info->size, digest, &n, EVP_md5(), NULL) != 1 || n != 16 ||
           memcmp(digest, info->signature.bytes, 16) != 0;
}

static struct flight **find_flight(struct down7 *d, uint32_t index)
{
    struct flight **at = &d->flights[index % DOWN7_BUCKETS];

    while (*at && (*at)->index != index)
        at = &(*at)->next;
    return at;
}

void *down7_begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                  struct timespec start)
{
    struct down7 *d = ctx;
    struct flight **at = find_flight(d, index);
    struct pq_reservation *r = NULL;

    (void)start;
    uint64_t up_to;
    if (!d->nflights && !d->reservation)
        pq_room_asked(d->ds.queue, &up_to); /* an earlier request does not concern this one */
    struct pq_signature sig;
    if (meta_len != sizeof sig.bytes || *at) {
        log_warn("product %u without a signature ignored", index);
        progress_settled(&d->progress, index, NULL);
        return NULL;
    }
    memcpy(sig.bytes, meta, sizeof sig.bytes);
    progress_known(&d->progress, index);
    down7_backlog_first(d, &sig);
    void *region;
    enum pq_status st = pq_reserve(d->ds.queue, &sig, size, &region, &r);
    if (st == PQ_DUP) {
        char hex[33];
        d->counts.duplicates++;
        log_warn("Duplicate product: sig=%s, size=%u", signature_format(&sig, hex), size);
        progress_settled(&d->progress, index, &sig);
        return NULL;
    }
    if (st != PQ_OK) {
        d->counts.rejected++;
        qlog_event(d->qlog, FMTP_EVENT_REFUSED, "\"index\":%u,\"bytes\":%u", index, size);
        log_warn("no room for product %u of %u bytes: %s", index, size, pq_strerror(st));
        if (st == PQ_FULL)
            down7_request_missed(d, index);
        else
            progress_settled(&d->progress, index, &sig);
        return NULL;
    }
    struct flight *f = xcalloc(1, sizeof *f);
    *f = (struct flight){
        .index = index, .size = size, .sig = sig, .reservation = r, .region = region};
    *at = f;
    d->nflights++;
    qlog_event(d->qlog, FMTP_EVENT_STARTED, "\"index\":%u,\"bytes\":%u", index, size);
    return region;
}

static void drop_flight(struct down7 *d, struct flight **at)
{
    struct flight *f = *at;

    d->nflights--;
    *at = f->next;
    free(f);
}

/* Decodes the region, which holds prod_info, data and (from an XDR encoder) padding, nothing
 * else. */
static bool decode(const struct flight *f, struct pq_info *info, uint32_t *offset)
{
    struct xin x;
    xin_init(&x, f->region, f->size);
    xin_info(&x, info);
    if (x.st != XIN_OK)
        return false;
    size_t rest = xin_left(&x);
    *offset = (uint32_t)xin_used(&x);
    return (rest == info->size || rest == info->size + xdr_pad(info->size)) &&
           memcmp(info->signature.bytes, f->sig.bytes, sizeof f->sig.bytes) == 0;
}

/* What arrived is useless; the backstop may have the product. */
static void reject(struct down7 *d, struct flight **at)
{
    uint32_t index = (*at)->index;

    d->counts.rejected++;
    pq_discard(d->ds.queue, (*at)->reservation);
    drop_flight(d, at);
    down7_request_missed(d, index);
}

static void count_received(struct down7 *d, uint32_t bytes, uint32_t retx_blocks, double delay_s)
{
    struct down7_counters *c = &d->counts;
    uint64_t delay_us = delay_s > 0 ? (uint64_t)(delay_s * 1e6) : 0;

    c->multicast_products++;
    c->multicast_bytes += bytes;
    c->repaired_products += retx_blocks > 0;
    c->latency_seconds += delay_us;
    c->negative_latencies += delay_s < 0;
    if (delay_us > c->latency_max_seconds)
        c->latency_max_seconds = delay_us;
    c->last_product_timestamp_seconds = counters_timestamp();
}

void down7_ended(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s)
{
    struct down7 *d = ctx;
    struct flight **at = find_flight(d, index), *f = *at;

    if (!f)
        return;
    struct pq_info info;
    uint32_t offset;
    if (!decode(f, &info, &offset)) {
        log_error("product %u of %u bytes is malformed", index, f->size);
        reject(d, at);
        return;
    }
    if (d->ds.opt->conf->set.verify_md5 && down7_md5_differs(&info, f->region + offset)) {
        log_error("digest differs from the signature: product %u", index);
        reject(d, at);
        return;
    }
    enum pq_status st = pq_commit(d->ds.queue, f->reservation, &info, offset);
    if (st != PQ_OK && st != PQ_DUP) {
        log_error("cannot insert product %u: %s", index, pq_strerror(st));
        reject(d, at);
        return;
    }
    drop_flight(d, at);
    progress_settled(&d->progress, index, &info.signature);
    d->session.dirty = true;
    if (st == PQ_OK)
        count_received(d, info.size, retx_blocks, delay_s);
    else
        d->counts.duplicates++;
    qlog_event(d->qlog, FMTP_EVENT_COMPLETED, "\"index\":%u,\"retx_blocks\":%u,\"delay_s\":%.6f",
               index, retx_blocks, delay_s);
    char line[PRODUCT_LINE_MAX], hex[33];
    if (st == PQ_OK)
        log_info("Received: {delay: %.6f s, index: %u, retrans: %u, info: \"%s\"}", delay_s, index,
                 retx_blocks, product_line_format(&info, line, sizeof line));
    else
        log_warn("Duplicate product: sig=%s, size=%u", signature_format(&info.signature, hex),
                 info.size);
}

void down7_missed(void *ctx, uint32_t index)
{
    struct down7 *d = ctx;
    struct flight **at = find_flight(d, index);

    d->counts.missed++;
    log_note("Missed: index=%u", index);
    qlog_event(d->qlog, FMTP_EVENT_MISSED, "\"index\":%u", index);
    if (*at) {
        pq_discard(d->ds.queue, (*at)->reservation);
        drop_flight(d, at);
    }
    progress_known(&d->progress, index);
    down7_request_missed(d, index);
}

void down7_withdrawn(void *ctx, uint32_t index)
{
    struct down7 *d = ctx;
    struct flight **at = find_flight(d, index);

    if (!d->told_forged)
        log_warn("Forged datagrams: product %u is not the publisher's and was dropped; "
                 "fmtp.mac_level 1 or 2 prevents them",
                 index);
    d->told_forged = true;
    qlog_event(d->qlog, FMTP_EVENT_WITHDRAWN, "\"index\":%u", index);
    if (!*at)
        return;
    pq_discard(d->ds.queue, (*at)->reservation);
    drop_flight(d, at);
}

void down7_lost(void *ctx, uint32_t index, uint32_t first, uint32_t blocks)
{
    const struct down7 *d = ctx;

    qlog_event(d->qlog, FMTP_EVENT_LOST, "\"index\":%u,\"first\":%u,\"blocks\":%u", index, first,
               blocks);
}

void down7_requested(void *ctx, uint32_t index, uint32_t blocks, bool multicast)
{
    const struct down7 *d = ctx;

    qlog_event(d->qlog, FMTP_EVENT_REQUESTED, "\"index\":%u,\"blocks\":%u,\"by\":\"%s\"", index,
               blocks, multicast ? "multicast" : "tcp");
}

void down7_expired(void *ctx, uint32_t index, bool patience)
{
    const struct down7 *d = ctx;

    qlog_event(d->qlog, FMTP_EVENT_EXPIRED, "\"index\":%u,\"timer\":\"%s\"", index,
               patience ? "patience" : "tau_rcv");
}

void down7_queue_full(void *ctx, uint32_t index)
{
    const struct down7 *d = ctx;

    qlog_event(d->qlog, FMTP_EVENT_FULL, "\"index\":%u", index);
}

static struct flight **largest_flight(struct down7 *d)
{
    struct flight **largest = NULL;

    for (size_t i = 0; i < DOWN7_BUCKETS; i++)
        for (struct flight **at = &d->flights[i]; *at; at = &(*at)->next)
            if (!largest || (*at)->size > (*largest)->size)
                largest = at;
    return largest;
}

void down7_let_go(struct down7 *d, uint64_t up_to)
{
    struct flight **at;

    bool all = up_to >= pq_last_seq(d->ds.queue);
    do {
        at = largest_flight(d);
        if (!at)
            return;
        log_warn(
            "Product %u of %u bytes was dropped to make room in the full queue; it is requested again",
            (*at)->index, (*at)->size);
        fmtp_client_abandon(d->fmtp, (*at)->index);
        reject(d, at);
    } while (all);
}

void down7_drop_flights(struct down7 *d)
{
    for (size_t i = 0; i < DOWN7_BUCKETS; i++)
        while (d->flights[i]) {
            pq_discard(d->ds.queue, d->flights[i]->reservation);
            drop_flight(d, &d->flights[i]);
        }
}
