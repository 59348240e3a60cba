/* SPDX-License-Identifier: Apache-2.0 */
#include "multicast_in.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/batch_in.h"
#include "net/sockets.h"

enum {
    MESSAGES = 64, /* per recvmmsg, if the application stores them; else: */
    PLACED = 32,
    /* Of these, without a prediction: a BOP among them makes one for what follows it. */
    UNPREDICTED = 8,
    SLOTS = 512,  /* most datagrams with a predicted place per recvmmsg */
    STORED = 256, /* most datagrams per recvmmsg, and per call, that the application stores */
    SLOTS_PER_MESSAGE = 64,
    SEGMENTS = 4096,                 /* most datagrams examined per recvmmsg */
    TAIL_BYTES = 65536,              /* receives what has no predicted place */
    TAIL_STEP = TAIL_BYTES + 23 * 64 /* not a power of two: they would share lines of the cache */
};

/* A datagram of the batch. */
struct segment {
    const uint8_t *head, *payload, *mac; /* head NULL: too short to be a datagram, or forged */
    size_t payload_len;
};

/* Where one message of the batch was directed: nslots times {header, place, MAC}, then tail. */
struct landing {
    unsigned first_slot, nslots;
    size_t slot_bytes; /* total of all its slots */
};

struct fmtp_multicast_in {
    int fd;
    struct fmtp_mac *mac;
    fmtp_store_fn *store;
    void *store_ctx;
    unsigned per_message; /* datagrams in a message, last time */
    size_t rcvbuf_granted;
    uint64_t mac_failures, in_place;
    unsigned count, asked;              /* messages in the batch; how many there was room for */
    uint32_t first_index, first_seqnum; /* of the first predicted place */
    struct landing landings[MESSAGES];
    struct mmsghdr msgs[MESSAGES];
    struct {
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))];
    } control[MESSAGES];
    struct iovec places[SLOTS];
    struct iovec parts[3 * SLOTS + MESSAGES];
    uint8_t heads[SLOTS][FMTP_HEADER_LEN];
    uint8_t macs[SLOTS][FMTP_MAC_MAX];
    unsigned nsegments;
    struct segment segments[SEGMENTS];
    uint8_t *gathered; /* datagrams from wrong places, reassembled */
    size_t gathered_room;
    uint8_t tails[MESSAGES][TAIL_STEP];
};

struct fmtp_multicast_in *fmtp_multicast_in_new(int fd)
{
    struct fmtp_multicast_in *in = calloc(1, sizeof *in);

    if (!in)
        return NULL;
    in->per_message = 1;
    in->fd = fd;
    tp_enable_gro(fd);
    return in;
}

struct fmtp_multicast_in *fmtp_multicast_in_open(const struct fmtp_client_config *cfg,
                                                 struct tp_error *err)
{
    int fd = tp_open_multicast_in(&cfg->group, &cfg->interface,
                                  cfg->layout == FMTP_LAYOUT_2021 ? &cfg->server : NULL, err);

    if (fd < 0)
        return NULL;
    struct fmtp_multicast_in *in = fmtp_multicast_in_new(fd);
    if (!in) {
        tp_fail(err, "out of memory");
        tp_close_fd(&fd);
        return NULL;
    }
    in->rcvbuf_granted = tp_set_rcvbuf(fd, cfg->rcvbuf_bytes);
    fmtp_multicast_in_set_store(in, cfg->store, cfg->ctx);
    return in;
}

void fmtp_multicast_in_close(struct fmtp_multicast_in *in)
{
    if (!in)
        return;
    tp_close_fd(&in->fd);
    free(in->gathered);
    free(in);
}

int fmtp_multicast_in_fd(const struct fmtp_multicast_in *in)
{
    return in->fd;
}

size_t fmtp_multicast_in_buffer(const struct fmtp_multicast_in *in)
{
    return in->rcvbuf_granted;
}

void fmtp_multicast_in_set_mac(struct fmtp_multicast_in *in, struct fmtp_mac *mac)
{
    in->mac = mac;
}

void fmtp_multicast_in_set_store(struct fmtp_multicast_in *in, fmtp_store_fn *store, void *ctx)
{
    in->store = store;
    in->store_ctx = ctx;
}

bool fmtp_multicast_in_was_full(const struct fmtp_multicast_in *in)
{
    return in->count == in->asked;
}

unsigned fmtp_multicast_in_datagrams(const struct fmtp_multicast_in *in)
{
    return in->nsegments;
}

static size_t mac_len(const struct fmtp_multicast_in *in)
{
    return in->mac ? fmtp_mac_len(in->mac) : 0;
}

/* ------------------------------------------------------------------ reading */

static struct iovec *lay_slot(struct fmtp_multicast_in *in, struct iovec *part, unsigned slot)
{
    *part++ = (struct iovec){in->heads[slot], FMTP_HEADER_LEN};
    *part++ = in->places[slot];
    if (mac_len(in))
        *part++ = (struct iovec){in->macs[slot], mac_len(in)};
    return part;
}

/* Lays out the buffers of a batch over the predicted places. */
static void lay_out(struct fmtp_multicast_in *in, const struct fmtp_receiver *core)
{
    unsigned per = in->per_message < SLOTS_PER_MESSAGE ? in->per_message : SLOTS_PER_MESSAGE;
    unsigned slot = 0, most = (in->store ? STORED : SLOTS) / per;
    struct iovec *part = in->parts;
    struct fmtp_header first = {0};

    unsigned messages = in->store ? MESSAGES : PLACED;

    if (in->store)
        core = NULL;
    in->asked = most < messages ? most : messages;
    unsigned predicted = core ? fmtp_receiver_places(core, &first, in->places, in->asked * per) : 0;
    if (core && !predicted)
        in->asked = in->asked < UNPREDICTED ? in->asked : UNPREDICTED;
    in->first_index = first.index;
    in->first_seqnum = first.seqnum;
    for (unsigned i = 0; i < in->asked; i++) {
        struct landing *l = &in->landings[i];
        struct iovec *begin = part;
        *l = (struct landing){.first_slot = slot};
        for (; l->nslots < per && slot < predicted; l->nslots++, slot++) {
            part = lay_slot(in, part, slot);
            l->slot_bytes += FMTP_HEADER_LEN + in->places[slot].iov_len + mac_len(in);
        }
        *part++ = (struct iovec){in->tails[i], TAIL_BYTES};
        in->msgs[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = begin,
                                                   .msg_iovlen = (size_t)(part - begin),
                                                   .msg_control = in->control[i].room,
                                                   .msg_controllen = sizeof in->control[i].room}};
    }
}

unsigned fmtp_multicast_in_read(struct fmtp_multicast_in *in, const struct fmtp_receiver *core)
{
    lay_out(in, core);
    int n = recvmmsg(in->fd, in->msgs, in->asked, MSG_DONTWAIT, NULL);
    in->count = n > 0 ? (unsigned)n : 0;
    return in->count;
}

/* ------------------------------------------------------------------ delivery */

/* Returns whether a datagram of seg bytes beginning with this slot landed where it belongs. */
static bool landed(const struct fmtp_multicast_in *in, unsigned slot, size_t seg)
{
    const struct iovec *place = &in->places[slot];

    if (seg != FMTP_HEADER_LEN + place->iov_len + mac_len(in))
        return false;
    struct fmtp_header h;
    fmtp_header_get(in->heads[slot], &h);
    return h.flags == FMTP_MEM_DATA && h.payloadlen == place->iov_len &&
           h.index == in->first_index &&
           h.seqnum == in->first_seqnum + (uint32_t)((uint8_t *)place->iov_base -
                                                     (uint8_t *)in->places[0].iov_base);
}

static void add_segment(struct fmtp_multicast_in *in, struct segment s)
{
    if (in->nsegments < SEGMENTS)
        in->segments[in->nsegments++] = s;
}

/* Adds a datagram in one piece. */
static void add_whole(struct fmtp_multicast_in *in, const uint8_t *bytes, size_t len)
{
    struct segment s = {0};

    if (len >= FMTP_HEADER_LEN + mac_len(in))
        s = (struct segment){.head = bytes,
                             .payload = bytes + FMTP_HEADER_LEN,
                             .mac = bytes + len - mac_len(in),
                             .payload_len = len - FMTP_HEADER_LEN - mac_len(in)};
    add_segment(in, s);
}

static size_t copy_out(const struct msghdr *h, size_t from, size_t len, uint8_t *out)
{
    size_t done = 0;

    for (size_t i = 0; i < h->msg_iovlen && done < len; i++) {
        const struct iovec *v = &h->msg_iov[i];
        if (from >= v->iov_len) {
            from -= v->iov_len;
            continue;
        }
        size_t n = v->iov_len - from < len - done ? v->iov_len - from : len - done;
        memcpy(out + done, (uint8_t *)v->iov_base + from, n);
        done += n;
        from = 0;
    }
    return done;
}

/* Splits one message into datagrams; those in wrong places are moved to *room. */
static void take_apart(struct fmtp_multicast_in *in, unsigned i, uint8_t **room)
{
    const struct landing *l = &in->landings[i];
    struct msghdr *h = &in->msgs[i].msg_hdr;
    size_t len = in->msgs[i].msg_len, seg = tp_gro_segment_len(h, len), slot_at = 0;
    unsigned slot = l->first_slot, number = 0;

    for (size_t at = 0; at < len || !number; at += seg, number++) {
        size_t n = len - at < seg ? len - at : seg;
        bool aligned = slot < l->first_slot + l->nslots && slot_at == at;
        if (aligned && landed(in, slot, n)) {
            add_segment(in, (struct segment){.head = in->heads[slot],
                                             .payload = in->places[slot].iov_base,
                                             .mac = in->macs[slot],
                                             .payload_len = in->places[slot].iov_len});
            in->in_place++;
        } else if (at >= l->slot_bytes) {
            add_whole(in, in->tails[i] + (at - l->slot_bytes), n);
        } else {
            add_whole(in, *room, copy_out(h, at, n, *room));
            *room += n;
        }
        if (aligned) {
            slot_at += FMTP_HEADER_LEN + in->places[slot].iov_len + mac_len(in);
            slot++;
        }
        if (!seg)
            break;
    }
    if (number > in->per_message)
        in->per_message = number;
}

/* Makes room for everything that may have landed in a wrong place. */
static bool make_room(struct fmtp_multicast_in *in)
{
    size_t need = 1; /* an empty datagram is moved too, so the room always exists */

    for (unsigned i = 0; i < in->count; i++) {
        size_t len = in->msgs[i].msg_len;
        if (in->landings[i].nslots)
            need += len < in->landings[i].slot_bytes + TAIL_BYTES
                        ? len
                        : in->landings[i].slot_bytes + TAIL_BYTES;
    }
    if (need <= in->gathered_room)
        return true;
    uint8_t *larger = realloc(in->gathered, need);
    if (!larger)
        return false;
    in->gathered = larger;
    in->gathered_room = need;
    return true;
}

/* Removes datagrams with a wrong MAC from the batch. This must happen before the core processes any
 * of the batch: until then all payloads are in memory of products that have not ended. */
static void authenticate(struct fmtp_multicast_in *in)
{
    for (unsigned i = 0; i < in->nsegments; i++) {
        struct segment *s = &in->segments[i];
        struct iovec parts[2] = {{(void *)s->head, FMTP_HEADER_LEN},
                                 {(void *)s->payload, s->payload_len}};

        if (!s->head || fmtp_mac_verify(in->mac, parts, 2, s->mac))
            continue;
        in->mac_failures++;
        s->head = NULL;
    }
}

/* Blocks that follow one another in the product. */
struct run {
    uint32_t index, at, end;
    unsigned n;
    struct segment *segments[STORED];
    const uint8_t *places[STORED];
};

static void store_run(struct fmtp_multicast_in *in, struct run *run)
{
    struct iovec parts[STORED];

    for (unsigned i = 0; i < run->n; i++)
        parts[i] = (struct iovec){(void *)run->segments[i]->payload, run->segments[i]->payload_len};
    if (run->n && in->store(in->store_ctx, run->index, run->at, parts, (int)run->n)) {
        for (unsigned i = 0; i < run->n; i++)
            run->segments[i]->payload = run->places[i];
        in->in_place += run->n;
    }
    run->n = 0;
}

/* Stores the blocks of the batch that the core misses, before it gets them. */
static void store_all(struct fmtp_multicast_in *in, const struct fmtp_receiver *core)
{
    struct run run = {.n = 0};

    for (unsigned i = 0; i < in->nsegments; i++) {
        struct segment *s = &in->segments[i];
        const uint8_t *place = s->head ? fmtp_receiver_place(core, s->head, s->payload_len) : NULL;
        if (!place)
            continue;
        struct fmtp_header h;
        fmtp_header_get(s->head, &h);
        if (run.n == STORED || h.index != run.index || h.seqnum != run.end)
            store_run(in, &run);
        if (!run.n) {
            run.index = h.index;
            run.at = run.end = h.seqnum;
        }
        run.segments[run.n] = s;
        run.places[run.n++] = place;
        run.end += (uint32_t)s->payload_len;
    }
    store_run(in, &run);
}

void fmtp_multicast_in_deliver(struct fmtp_multicast_in *in, struct fmtp_receiver *core,
                               uint64_t now_ns)
{
    in->nsegments = 0;
    if (!make_room(in))
        return; /* no memory: counts as lost in the network */
    uint8_t *room = in->gathered;
    in->per_message = 1; /* the next batch will probably look like this one */
    for (unsigned i = 0; i < in->count; i++)
        take_apart(in, i, &room);
    if (in->mac)
        authenticate(in);
    if (in->store)
        store_all(in, core);
    for (unsigned i = 0; i < in->nsegments; i++) {
        const struct segment *s = &in->segments[i];
        if (s->head)
            fmtp_receiver_datagram(core, s->head, s->payload, s->payload_len, now_ns);
        else
            fmtp_receiver_bad_datagram(core);
    }
}

void fmtp_multicast_in_get_stats(const struct fmtp_multicast_in *in, struct fmtp_client_stats *out)
{
    out->socket_drops = tp_socket_drops(in->fd);
    out->rcvbuf_granted_bytes = in->rcvbuf_granted;
    out->mac_failures = in->mac_failures;
    out->in_place = in->in_place;
}
