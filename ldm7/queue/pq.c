/* SPDX-License-Identifier: Apache-2.0
 *
 * Product queue: the operations of pq.h.
 */
#include "pq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "pq_impl.h"

const char *pq_strerror(enum pq_status st)
{
    switch (st) {
    case PQ_OK: return "success";
    case PQ_END: return "no further product";
    case PQ_DUP: return "a product with this signature is in the queue";
    case PQ_BIG: return "product larger than the queue";
    case PQ_FULL: return "queue full: the room that must be made is in use";
    case PQ_CORRUPT: return "not a product queue, of another version, or damaged";
    case PQ_SYSTEM: return strerror(errno);
    case PQ_INVAL: return "invalid argument";
    }
    return "unknown status";
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Maps the pages of a region that is about to be filled, if this handle has not done so yet: one
 * call instead of a fault for each page. Limited to the beginning of a huge region, because the
 * caller waits. Only a hint: kernels before 5.14 refuse it. */
static void populate(struct pq *q, uint64_t offset, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    enum { CHUNKS_AT_ONCE = 64 };
    uint64_t first = offset / PQ_CHUNK, last = (offset + bytes - 1) / PQ_CHUNK, from = 0, run = 0;
    int saved = errno;
    if (last - first >= CHUNKS_AT_ONCE)
        last = first + CHUNKS_AT_ONCE - 1;
    for (uint64_t c = first; c <= last + 1; c++) {
        if (c <= last && !(q->mapped[c / 64] >> c % 64 & 1)) {
            q->mapped[c / 64] |= UINT64_C(1) << c % 64;
            if (!run++)
                from = c * PQ_CHUNK;
        } else if (run) {
            uint64_t room = q->h->data_bytes - from;
            madvise(q->data + from, run * PQ_CHUNK < room ? run * PQ_CHUNK : room,
                    MADV_POPULATE_WRITE);
            run = 0;
        }
    }
    errno = saved;
#else
    (void)q;
    (void)offset;
    (void)bytes;
#endif
}

/* Call this under the lock. */
static enum pq_status take_room(struct pq *q, const struct pq_signature *sig, uint64_t bytes,
                                uint32_t *slot)
{
    if (bytes > q->h->data_bytes)
        return PQ_BIG;
    if (sig && pq_hash_find(q, sig) != PQ_NONE) {
        q->h->duplicates++;
        return PQ_DUP;
    }
    return pq_region_take(q, bytes, q->client, slot);
}

enum pq_status pq_reserve(struct pq *q, const struct pq_signature *sig, uint64_t region_bytes,
                          void **region, struct pq_reservation **out)
{
    if (!q->writable)
        return PQ_INVAL;
    uint64_t offset = 0;
    struct pq_reservation *r = calloc(1, sizeof *r);
    if (!r)
        return PQ_SYSTEM;
    struct pq_wait w = {0};
    enum pq_status s;
    for (bool waits = true; waits;) {
        s = pq_lock(q);
        if (s)
            break;
        s = take_room(q, sig, region_bytes, &r->slot);
        if (!s)
            offset = q->slots[r->slot].offset;
        waits = s == PQ_FULL && pq_room_ask(q, &w);
        pq_unlock(q);
        if (waits)
            pq_room_wait(q, &w);
    }
    if (s) {
        free(r);
        return s;
    }
    *region = q->data + offset;
    populate(q, offset, pq_round_up(region_bytes));
    r->region_bytes = region_bytes;
    r->next = q->reservations;
    if (r->next)
        r->next->prev = r;
    q->reservations = r;
    *out = r;
    return PQ_OK;
}

static void forget(struct pq *q, struct pq_reservation *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        q->reservations = r->next;
    if (r->next)
        r->next->prev = r->prev;
    free(r);
}

enum pq_status pq_commit(struct pq *q, struct pq_reservation *r, const struct pq_info *info,
                         uint32_t data_offset)
{
    if ((uint64_t)data_offset + info->size > r->region_bytes ||
        !memchr(info->ident, 0, sizeof info->ident) ||
        !memchr(info->origin, 0, sizeof info->origin))
        return PQ_INVAL;
    enum pq_status s = pq_lock(q);
    if (s)
        return s;
    struct pq_header *h = q->h;
    uint32_t slot = r->slot;
    if (pq_hash_find(q, &info->signature) != PQ_NONE) {
        h->duplicates++;
        pq_region_free(q, slot);
        pq_unlock(q);
        forget(q, r);
        return PQ_DUP;
    }
    struct pq_slot *sl = &q->slots[slot];
    uint64_t seq = atomic_load(&h->last_seq) + 1;
    uint32_t old = q->order[seq % h->order_cells];
    if (old)
        pq_evict(q, old - 1);
    sl->info = *info;
    sl->data_offset = data_offset;
    sl->inserted_us = now_us();
    if (sl->inserted_us > h->last_order_us)
        h->last_order_us = sl->inserted_us;
    sl->order_us = h->last_order_us;
    sl->seq = seq;
    atomic_store(&h->last_seq, seq);
    /* Announce before committing: if this process were killed in between, nothing would wake the
     * readers. Readers that wake now wait for the lock. */
    pq_announce(q);
    pq_disown(q, slot);
    pq_set_state(sl, SLOT_COMMITTED);
    pq_index_add(q, slot);
    h->inserted++;
    pq_room_made(q);
    pq_unlock(q);
    q->committed_seq = seq;
    forget(q, r);
    return PQ_OK;
}

void pq_discard(struct pq *q, struct pq_reservation *r)
{
    if (!r)
        return;
    if (pq_lock(q) == PQ_OK) {
        pq_region_free(q, r->slot);
        pq_unlock(q);
    }
    forget(q, r);
}

enum pq_status pq_insert(struct pq *q, const struct pq_info *info, const void *data)
{
    void *region;
    struct pq_reservation *r;
    enum pq_status s = pq_reserve(q, &info->signature, info->size, &region, &r);
    if (s)
        return s;
    if (info->size)
        memcpy(region, data, info->size);
    s = pq_commit(q, r, info, 0);
    if (s && s != PQ_DUP)
        pq_discard(q, r);
    return s;
}

static void show(struct pq *q, uint32_t slot, struct pq_view *out)
{
    const struct pq_slot *s = &q->slots[slot];
    pq_pin(q, slot);
    out->info = s->info;
    out->inserted =
        (struct timeval){.tv_sec = s->inserted_us / 1000000, .tv_usec = s->inserted_us % 1000000};
    out->data = q->data + s->offset + s->data_offset;
    out->seq = s->seq;
    out->slot = slot;
}

enum pq_status pq_next(struct pq *q, uint64_t after, struct pq_view *out)
{
    enum pq_status s = pq_lock(q);
    if (s)
        return s;
    uint32_t slot = pq_index_after(q, after);
    if (slot != PQ_NONE)
        show(q, slot, out);
    pq_unlock(q);
    return slot == PQ_NONE ? PQ_END : PQ_OK;
}

enum pq_status pq_find(struct pq *q, const struct pq_signature *sig, struct pq_view *out)
{
    enum pq_status s = pq_lock(q);
    if (s)
        return s;
    uint32_t slot = pq_hash_find(q, sig);
    if (slot != PQ_NONE)
        show(q, slot, out);
    pq_unlock(q);
    return slot == PQ_NONE ? PQ_END : PQ_OK;
}

void pq_release(struct pq *q, struct pq_view *v)
{
    if (!v->data || pq_lock(q) != PQ_OK)
        return;
    if (v->slot < q->h->slots && q->my_pins[v->slot] && q->slots[v->slot].seq == v->seq)
        pq_unpin(q, v->slot);
    pq_unlock(q);
    v->data = NULL;
}

enum pq_status pq_remove(struct pq *q, uint64_t seq)
{
    if (!q->writable)
        return PQ_INVAL;
    enum pq_status s = pq_lock(q);
    if (s)
        return s;
    uint32_t slot = pq_index_at(q, seq);
    if (slot != PQ_NONE) {
        pq_drop(q, slot);
        q->h->removed++;
    }
    pq_unlock(q);
    return slot == PQ_NONE ? PQ_END : PQ_OK;
}

enum pq_status pq_seek(struct pq *q, const struct timeval *from, uint64_t *after)
{
    int64_t us;
    if (__builtin_mul_overflow((int64_t)from->tv_sec, INT64_C(1000000), &us) ||
        __builtin_add_overflow(us, (int64_t)from->tv_usec, &us))
        us = from->tv_sec < 0 ? INT64_MIN : INT64_MAX;
    enum pq_status s = pq_lock(q);
    if (s)
        return s;
    *after = pq_index_before_time(q, us);
    pq_unlock(q);
    return PQ_OK;
}

uint64_t pq_last_seq(struct pq *q)
{
    return atomic_load(&q->h->last_seq);
}

uint64_t pq_committed_seq(const struct pq *q)
{
    return q->committed_seq;
}

static double age_s(const struct pq *q, uint32_t slot, int64_t now)
{
    return slot == PQ_NONE ? -1 : (double)(now - q->slots[slot].inserted_us) / 1e6;
}

void pq_get_stats(struct pq *q, struct pq_stats *out)
{
    memset(out, 0, sizeof *out);
    if (pq_lock(q) != PQ_OK)
        return;
    const struct pq_header *h = q->h;
    int64_t now = now_us();
    out->data_bytes = h->data_bytes;
    out->used_bytes = h->used_bytes;
    out->high_water_bytes = h->high_water_bytes;
    out->slots = h->slots;
    out->used_slots = h->products;
    out->high_water_slots = h->high_water_slots;
    out->inserted = h->inserted;
    out->evicted = h->evicted;
    out->removed = h->removed;
    out->recoveries = h->recoveries;
    out->unclean = h->unclean != 0;
    out->duplicates = h->duplicates;
    out->age_oldest_s = age_s(q, h->oldest, now);
    out->age_youngest_s = age_s(q, h->newest, now);
    out->reserved_slots = h->used_slots - h->products;
    out->high_water_occupied = h->high_water_used;
    out->free_extents = h->free_nodes;
    out->high_water_free_extents = h->high_water_free_nodes;
    out->largest_free_bytes = pq_largest_free(q);
    out->min_residence_s = h->min_residence_us < 0 ? -1 : (double)h->min_residence_us / 1e6;
    out->min_residence_bytes = h->min_residence_bytes;
    out->min_residence_slots = h->min_residence_slots;
    pq_unlock(q);
}

enum pq_status pq_reset(struct pq *q, enum pq_reset_what what)
{
    enum pq_status s = q->writable ? pq_lock(q) : PQ_INVAL;
    if (s)
        return s;
    if (what == PQ_RESET_UNCLEAN) {
        pq_client_reclaim(q);
        q->h->unclean = 0;
    } else {
        q->h->min_residence_us = -1;
    }
    pq_unlock(q);
    return PQ_OK;
}

enum pq_status pq_check(struct pq *q)
{
    enum pq_status s = pq_lock(q);
    if (s)
        return s;
    s = pq_verify(q) ? PQ_OK : PQ_CORRUPT;
    q->h->suspect = s != PQ_OK;
    pq_unlock(q);
    return s;
}
