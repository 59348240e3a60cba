/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_kit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/random.h"

enum {
    INTERVAL_NS = 100000,
    DELAY_NS = 20000000,
    IN_FLIGHT = DELAY_NS / INTERVAL_NS, /* datagrams */
    SOURCE = 7
};

/* ------------------------------------------------------------------ stores */

static int read_file(void *ctx, uint64_t at, void *bytes, size_t len)
{
    const struct sim_file *f = ctx;

    assert(at + len <= f->bytes);
    memcpy(bytes, f->data + at, len);
    return 0;
}

static int store_read(void *ctx, uint64_t at, void *bytes, size_t len)
{
    const struct sim_store *s = ctx;

    assert(at + len <= s->room);
    memcpy(bytes, s->data + at, len);
    return 0;
}

static int store_write(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct sim_store *s = ctx;

    if (at + len > s->room) {
        assert(!s->is_fixed);
        s->room = 2 * (at + len);
        s->data = realloc(s->data, s->room);
    }
    memcpy(s->data + at, bytes, len);
    return 0;
}

static int write_nothing(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    (void)ctx;
    (void)at;
    (void)bytes;
    (void)len;
    return 0;
}

static void note(void *ctx, struct fcast_symbol symbol)
{
    struct sim_place *p = ctx;

    if (p->note_count == p->note_room) {
        p->note_room = p->note_room ? 2 * p->note_room : 64;
        p->notes = reallocarray(p->notes, p->note_room, sizeof *p->notes);
    }
    p->notes[p->note_count++] = symbol;
}

static bool noted(void *ctx, uint64_t i, struct fcast_symbol *out)
{
    const struct sim_place *p = ctx;

    if (i >= p->note_count)
        return false;
    *out = p->notes[i];
    return true;
}

/* ------------------------------------------------------------------ receivers */

static void place_free(struct sim_place *p)
{
    free(p->data.data);
    free(p->repair.data);
    free(p->notes);
    free(p);
}

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    struct sim_receiver *r = ctx;
    struct sim_place *p = r->places;

    bool is_seed = r->sim->cfg.sender.protocol == FCAST_PROTOCOL_SEED;
    assert(source == SOURCE && tsi == (is_seed ? 0 : r->sim->cfg.sender.tsi));
    bool is_foreign = toi >= SIM_FILES;
    if (!is_foreign && r->has[toi])
        return FCAST_HAVE;
    while (p && p->toi != toi)
        p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        *p = (struct sim_place){.toi = toi, .bytes = fti->length, .next = r->places};
        if (!is_foreign)
            p->data = (struct sim_store){malloc(fti->length + 1), fti->length, true};
        r->places = p;
        r->promised += p->bytes;
        r->promised_max = r->promised > r->promised_max ? r->promised : r->promised_max;
    }
    int (*write)(void *, uint64_t, const void *, size_t) = is_foreign ? write_nothing : store_write;
    *out = (struct fcast_place){.ctx = p,
                                .data = {&p->data, store_read, write},
                                .repair = {&p->repair, store_read, write},
                                .note = note,
                                .noted = noted};
    return p->bytes == fti->length ? FCAST_WANT : FCAST_REFUSE;
}

static void forget(struct sim_receiver *r, struct sim_place *p)
{
    struct sim_place **link = &r->places;

    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    r->promised -= p->bytes;
    place_free(p);
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    struct sim_receiver *r = ctx;
    struct sim_place *p = place;
    bool good = false;

    for (unsigned i = 0; i < r->sim->file_count; i++) {
        const struct sim_file *f = &r->sim->files[i];
        char name[32];
        snprintf(name, sizeof name, "file-%u", i);
        if (f->toi == toi)
            good = bytes == f->bytes && strcmp(meta->location, name) == 0 &&
                   memcmp(p->data.data + at, f->data, bytes) == 0;
    }
    r->done += good;
    /* datagrams still in flight were not needed */
    r->done_at = r->sim->sent > IN_FLIGHT ? r->sim->sent - IN_FLIGHT : 0;
    r->has[toi] = good;
    r->wrong += !good;
    forget(r, p);
    return good ? FCAST_STORED : FCAST_WRONG;
}

static void drop(void *ctx, uint64_t toi, void *place, bool keep)
{
    struct sim_receiver *r = ctx;

    (void)toi;
    r->dropped++;
    if (!keep)
        forget(r, place);
}

static void start_receiver(struct sim *s, unsigned i)
{
    const struct fcast_sender_config *sender = &s->cfg.sender;
    struct sim_receiver *r = &s->receivers[i];
    const struct fcast_receiver_config cfg = {.protocol = sender->protocol,
                                              .rs_kind = sender->rs_kind,
                                              .max_objects = s->cfg.max_objects,
                                              .max_bytes = s->cfg.max_bytes,
                                              .max_age_s = s->cfg.max_age_s,
                                              .key =
                                                  s->cfg.other_key ? s->cfg.other_key : sender->key,
                                              .key_len = sender->key_len,
                                              .ctx = r,
                                              .begin = begin,
                                              .done = done,
                                              .drop = drop};

    r->sim = s;
    r->core = fcast_receiver_new(&cfg);
    assert(r->core);
}

void sim_restart(struct sim *s, unsigned receiver)
{
    fcast_receiver_free(s->receivers[receiver].core);
    start_receiver(s, receiver);
}

/* ------------------------------------------------------------------ life */

struct sim *sim_new(const struct sim_config *cfg)
{
    struct sim *s = calloc(1, sizeof *s);

    s->cfg = *cfg;
    s->random = cfg->seed;
    s->cfg.sender.random = cfg->seed + 1;
    s->cfg.sender.repair = (struct fcast_store){&s->repair, store_read, store_write};
    s->sender = fcast_sender_new(&s->cfg.sender);
    assert(s->sender);
    for (unsigned i = 0; i < cfg->receivers; i++)
        start_receiver(s, i);
    return s;
}

void sim_free(struct sim *s)
{
    for (unsigned i = 0; i < s->cfg.receivers; i++) {
        fcast_receiver_free(s->receivers[i].core);
        while (s->receivers[i].places)
            forget(&s->receivers[i], s->receivers[i].places);
    }
    for (unsigned i = 0; i < s->file_count; i++)
        free(s->files[i].data);
    fcast_sender_free(s->sender);
    tp_events_free(&s->events);
    free(s->repair.data);
    free(s);
}

void sim_file(struct sim *s, uint64_t bytes)
{
    struct sim_file *f = &s->files[s->file_count];
    struct fcast_meta meta = {0};
    const struct fcast_store source = {f, read_file, NULL};

    f->bytes = bytes;
    f->data = malloc(bytes + 1);
    for (uint64_t i = 0; i < bytes; i++)
        f->data[i] = (uint8_t)tp_random_bits(&s->random);
    snprintf(meta.location, sizeof meta.location, "file-%u", s->file_count++);
    int rc = fcast_sender_add(s->sender, &meta, bytes, &source, &f->toi);
    assert(rc == 0);
    (void)rc;
    s->symbols += (bytes + s->cfg.sender.symbol_bytes - 1) / s->cfg.sender.symbol_bytes;
}

static bool is_lost(struct sim *s)
{
    return (s->cfg.periodic && s->sent % s->cfg.periodic == s->cfg.phase) ||
           tp_random_chance(&s->random, s->cfg.loss);
}

static void multicast(struct sim *s, const uint8_t *bytes, size_t len)
{
    for (unsigned i = 0; i < s->cfg.receivers; i++) {
        if (s->sent < (uint64_t)i * s->cfg.late || s->receivers[i].finished || is_lost(s))
            continue;
        int copies = 1 + tp_random_chance(&s->random, s->cfg.duplicate);
        while (copies--) {
            uint64_t extra = tp_random_chance(&s->random, s->cfg.reorder)
                                 ? tp_random_below(&s->random, 50 * INTERVAL_NS)
                                 : 0;
            tp_events_push_bytes(
                &s->events, (struct tp_event){.at_ns = s->now_ns + DELAY_NS + extra, .to = (int)i},
                bytes, len);
        }
    }
}

/* Delivers what has arrived by now. */
static void deliver(struct sim *s)
{
    while (tp_events_next(&s->events) <= s->now_ns) {
        struct tp_event e = tp_events_pop(&s->events);
        struct sim_receiver *r = &s->receivers[e.to];
        if (!r->finished) {
            fcast_receiver_datagram(r->core, SOURCE, e.packet->bytes, e.packet->len, s->now_ns);
            if (fcast_receiver_has_all(r->core))
                r->finished = s->sent - IN_FLIGHT;
        }
        tp_packet_done(e.packet);
    }
}

static bool all_finished(const struct sim *s)
{
    for (unsigned i = 0; i < s->cfg.receivers; i++)
        if (!s->receivers[i].finished)
            return false;
    return true;
}

void sim_run(struct sim *s, uint64_t datagrams_max)
{
    static uint8_t bytes[FCAST_DATAGRAM_MAX];

    if (!s->sent) {
        int rc = fcast_sender_commit(s->sender);
        assert(rc == 0);
        (void)rc;
    }
    for (uint64_t i = 0; i < datagrams_max && !all_finished(s); i++) {
        size_t len = fcast_sender_next(s->sender, bytes);
        s->ended = len == 0;
        if (s->ended)
            break;
        s->sent++;
        multicast(s, bytes, len);
        if (s->cfg.between)
            s->cfg.between(s->receivers[0].core, s->sent);
        s->now_ns += INTERVAL_NS;
        deliver(s);
    }
    s->now_ns += 2 * DELAY_NS;
    deliver(s);
}

double sim_listening(const struct sim *s, unsigned receiver)
{
    const struct sim_receiver *r = &s->receivers[receiver];

    return (double)(r->finished - (uint64_t)receiver * s->cfg.late) / (double)s->symbols;
}
