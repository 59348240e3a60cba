/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving control: receives a carousel's files into a folder, in a thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrival.h"
#include "control.h"
#include "loop/loop.h"
#include "net/batch_in.h"
#include "net/sockets.h"
#include "seed.h"

enum { WAIT_MS = 200, RCVBUF_BYTES = 16 << 20 };
#define UNPACKED_MAX (UINT64_C(4) << 30)
#define BYTES_MAX (UINT64_C(128) << 30)

struct fcast_rx {
    struct control control;
    struct fcast_rx_options options;
    char *folder;
    struct fcast_rx_stats stats; /* protected by the lock */
    /* Valid after a start. */
    struct arrival arrival;
    bool is_open; /* the arrival is open */
    int fd;
    struct tp_batch_in *in;
    struct fcast_receiver *core;
};

struct fcast_rx *fcast_rx_init(const char *address, uint16_t port, const char *folder,
                               const struct fcast_rx_options *options, char why[FCAST_CONTROL_WHY])
{
    static const struct fcast_rx_options none;
    const struct fcast_rx_options *o = options ? options : &none;
    struct fcast_rx *rx = calloc(1, sizeof *rx);

    if (!rx || !(rx->folder = strdup(folder))) {
        free(rx);
        control_why(why, strerror(ENOMEM));
        return NULL;
    }
    rx->options = *o;
    rx->fd = -1;
    if (control_init(&rx->control, address, port, o->interface_address, why) == 0)
        return rx;
    fcast_rx_free(rx);
    return NULL;
}

/* ------------------------------------------------------------------ news of the files */

static void began(void *ctx, uint64_t toi, uint64_t bytes)
{
    const struct fcast_rx_options *o = &((struct fcast_rx *)ctx)->options;

    if (o->on_file_start)
        o->on_file_start(o->ctx, toi, bytes);
}

static void file(void *ctx, const struct arrival_file *f)
{
    const struct fcast_rx_options *o = &((struct fcast_rx *)ctx)->options;

    if (o->on_file_complete)
        o->on_file_complete(o->ctx, f->toi, f->name, f->bytes);
}

static void trouble(void *ctx, const char *text)
{
    const struct fcast_rx_options *o = &((struct fcast_rx *)ctx)->options;

    if (o->on_error)
        o->on_error(o->ctx, text);
}

/* ------------------------------------------------------------------ the thread */

static void take(void *ctx, const uint8_t *bytes, size_t len, const struct sockaddr_storage *from)
{
    struct fcast_rx *rx = ctx;

    fcast_receiver_datagram(rx->core, tp_address_number(from), bytes, len, rx->arrival.now_ns);
}

static void note(struct fcast_rx *rx)
{
    struct fcast_receiver_stats st;

    fcast_receiver_get_stats(rx->core, &st);
    pthread_mutex_lock(&rx->control.lock);
    rx->stats = (struct fcast_rx_stats){
        .received = st.received,
        .lost = st.lost,
        .redundant = st.redundant,
        .out_of_order = st.out_of_order,
        .stray = st.stray + st.malformed,
        .dropped = tp_socket_drops(rx->fd),
        .decoded = st.decoded,
        .files_started = st.objects_started,
        .files_received = st.objects_done + st.objects_wrong + st.objects_unstored,
        .files_done = st.objects_done,
        .payload_bytes = rx->arrival.fti.symbol_bytes,
    };
    pthread_mutex_unlock(&rx->control.lock);
}

/* Returns why it must end other than by a stop or with all files; NULL: continue. */
static const char *why_end(const struct fcast_rx *rx)
{
    if (rx->arrival.places.error)
        return strerror(rx->arrival.places.error);
    if (!rx->options.is_satellite && fcast_receiver_is_closed(rx->core))
        return "the sender ended the session before all files were complete";
    return NULL;
}

static void *run(void *arg)
{
    struct fcast_rx *rx = arg;
    const struct fcast_rx_options *o = &rx->options;
    struct pollfd p[2] = {{.fd = rx->fd, .events = POLLIN},
                          {.fd = rx->control.wake_fd, .events = POLLIN}};
    const char *why = NULL;
    bool has_all = false;

    rx->arrival.begun_ns = tp_now_ns();
    while (!why && !has_all && !p[1].revents) {
        poll(p, 2, WAIT_MS);
        arrival_time(&rx->arrival);
        tp_batch_in_read(rx->in, take, rx);
        note(rx);
        has_all = !o->is_satellite && fcast_receiver_has_all(rx->core);
        why = has_all ? NULL : why_end(rx);
    }
    /* Leave the group. */
    tp_batch_in_free(rx->in);
    rx->in = NULL;
    tp_close_fd(&rx->fd);
    if (has_all && o->on_complete)
        o->on_complete(o->ctx);
    if (why && o->on_fatal_error)
        o->on_fatal_error(o->ctx, why);
    return NULL;
}

/* ------------------------------------------------------------------ calls */

/* Releases what a start allocated. */
static void close_start(struct fcast_rx *rx)
{
    const bool has_all = rx->core && fcast_receiver_has_all(rx->core);

    fcast_receiver_free(rx->core);
    rx->core = NULL;
    if (rx->is_open)
        arrival_close(&rx->arrival, has_all && !rx->arrival.places.error);
    rx->is_open = false;
    tp_batch_in_free(rx->in);
    rx->in = NULL;
    tp_close_fd(&rx->fd);
}

static int prepare(struct fcast_rx *rx, struct tp_error *err)
{
    const struct fcast_rx_options *o = &rx->options;
    struct fcast_receiver_config cfg = {.protocol = (enum fcast_protocol)o->protocol,
                                        .max_object_bytes = o->max_object_bytes,
                                        .max_bytes = BYTES_MAX,
                                        .follows = o->is_satellite};

    if (o->protocol == FCAST_CONTROL_SEED)
        cfg.rs_kind = FCAST_SEED_RS;
    rx->arrival = (struct arrival){
        .news = {.ctx = rx, .began = began, .file = file, .trouble = trouble},
        .max_unpacked_bytes = o->max_unpacked_bytes ? o->max_unpacked_bytes : UNPACKED_MAX};
    if (arrival_open(&rx->arrival, rx->folder, BYTES_MAX, err) != ARRIVAL_OPEN)
        return -1;
    rx->is_open = true;
    rx->arrival.places.keeping.rs_kind = cfg.rs_kind;
    rx->arrival.places.keeping.has_header = o->protocol == FCAST_CONTROL_FCAST;
    rx->fd = tp_open_multicast_in(&rx->control.group, &rx->control.interface, NULL, err);
    if (rx->fd < 0)
        return -1;
    tp_set_rcvbuf(rx->fd, RCVBUF_BYTES);
    rx->in = tp_batch_in_new(rx->fd);
    arrival_serve(&rx->arrival, &cfg);
    rx->core = rx->arrival.core = fcast_receiver_new(&cfg);
    return rx->in && rx->core ? 0 : tp_fail(err, "out of memory");
}

int fcast_rx_start(struct fcast_rx *rx, char why[FCAST_CONTROL_WHY])
{
    struct tp_error err;

    if (rx->control.is_running)
        return control_why(why, "already receiving; call fcast_rx_stop() first");
    int result = prepare(rx, &err);
    if (result < 0) {
        control_why(why, err.text);
    } else {
        note(rx);
        result = control_start(&rx->control, run, rx, why);
    }
    if (result < 0)
        close_start(rx);
    return result;
}

void fcast_rx_stop(struct fcast_rx *rx)
{
    control_stop(&rx->control);
    close_start(rx);
}

void fcast_rx_get_stats(struct fcast_rx *rx, struct fcast_rx_stats *out)
{
    pthread_mutex_lock(&rx->control.lock);
    *out = rx->stats;
    pthread_mutex_unlock(&rx->control.lock);
}

void fcast_rx_free(struct fcast_rx *rx)
{
    if (!rx)
        return;
    fcast_rx_stop(rx);
    control_free(&rx->control);
    free(rx->folder);
    free(rx);
}
