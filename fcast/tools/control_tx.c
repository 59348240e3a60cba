/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending control: sends a file's carousel in a thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control.h"
#include "loop/loop.h"
#include "net/sockets.h"
#include "outgoing.h"
#include "seed.h"
#include "source.h"

_Static_assert((int)FCAST_CONTROL_SEED == (int)FCAST_PROTOCOL_SEED, "the same protocols");

#define ENDLESS_OVERHEAD 0.5 /* repair symbols per source symbol of an endless carousel */
#define REDUNDANCY_MAX 7
#define RATE_MIN UINT64_C(125) /* bytes/s */
#define RATE_MAX UINT64_C(12500000000)

struct fcast_tx {
    struct control control;
    struct fcast_tx_options options;
    char *cache_folder;
    uint8_t ttl;
    uint64_t bytes_per_s;
    struct fcast_tx_stats stats; /* protected by the lock */
    /* Valid after a start. */
    char *path;
    struct source_file file;
    struct cache cache;
    struct fcast_sender *sender;
    struct outgoing out;
};

struct fcast_tx *fcast_tx_init(const char *address, uint16_t port, uint8_t ttl,
                               uint64_t bytes_per_s, const struct fcast_tx_options *options,
                               char why[FCAST_CONTROL_WHY])
{
    static const struct fcast_tx_options none;
    const struct fcast_tx_options *o = options ? options : &none;
    struct fcast_tx *tx = calloc(1, sizeof *tx);

    if (!tx || !(tx->cache_folder = strdup(o->cache_folder ? o->cache_folder : "/var/tmp"))) {
        free(tx);
        control_why(why, strerror(ENOMEM));
        return NULL;
    }
    tx->options = *o;
    tx->ttl = ttl;
    tx->bytes_per_s = bytes_per_s;
    tx->file.fd = tx->cache.fd = tx->out.batch.fd = -1;
    bool good = control_init(&tx->control, address, port, o->interface_address, why) == 0;
    if (good && (bytes_per_s < RATE_MIN || bytes_per_s > RATE_MAX)) {
        snprintf(why, FCAST_CONTROL_WHY, "%llu bytes/s; valid: %llu to %llu",
                 (unsigned long long)bytes_per_s, (unsigned long long)RATE_MIN,
                 (unsigned long long)RATE_MAX);
        good = false;
    }
    if (good)
        return tx;
    fcast_tx_free(tx);
    return NULL;
}

/* Releases what a start allocated. */
static void close_start(struct fcast_tx *tx)
{
    fcast_sender_free(tx->sender);
    tx->sender = NULL;
    tp_close_fd(&tx->file.fd);
    tp_close_fd(&tx->cache.fd);
    tp_close_fd(&tx->out.batch.fd);
    free(tx->path);
    tx->path = NULL;
}

/* Returns the code of a start: redundancy <= 0 means endless. */
static struct fcast_sender_config config_of(struct fcast_tx *tx, double redundancy)
{
    const bool is_seed = tx->options.protocol == FCAST_CONTROL_SEED, ends = redundancy > 0;
    struct fcast_sender_config cfg = {
        .protocol = (enum fcast_protocol)tx->options.protocol,
        .fec = is_seed ? FCAST_RS : FCAST_TRIANGLE,
        .rs_kind = is_seed ? FCAST_SEED_RS : 0,
        .symbol_bytes = is_seed ? FCAST_SEED_BLOCK_BYTES : outgoing_symbol(&tx->out, false),
        .overhead = ends ? redundancy : ENDLESS_OVERHEAD,
        .order = FCAST_SHUFFLE,
        .cycles = ends,
        .expires = outgoing_expires(),
        .repair = cache_store(&tx->cache),
    };

    return cfg;
}

static int prepare(struct fcast_tx *tx, double redundancy, struct tp_error *err)
{
    struct fcast_meta meta;
    uint64_t toi;

    tx->out.rate_bps = 8 * tx->bytes_per_s;
    tx->out.waiting = 0;
    tx->cache = (struct cache){.folder = tx->cache_folder, .fd = -1};
    if (source_open(&tx->file, tx->path, err) < 0 ||
        source_describe(&tx->file, true, &meta, err) < 0 ||
        (tx->cache.fd = cache_file(tx->cache_folder, err)) < 0 ||
        outgoing_open(&tx->out, &tx->control.interface, &tx->control.group, tx->ttl, err) < 0)
        return -1;
    struct fcast_sender_config cfg = config_of(tx, redundancy);
    if (getrandom(&cfg.random, sizeof cfg.random, 0) < 0)
        return tp_fail(err, "random numbers: %s", strerror(errno));
    cfg.tsi = cfg.random % UINT16_MAX + 1;
    tx->sender = fcast_sender_new(&cfg);
    if (!tx->sender)
        return tp_fail(err, "impossible code: %s", strerror(errno));
    const struct fcast_store source = source_store(&tx->file);
    if (fcast_sender_add(tx->sender, &meta, meta.length, &source, &toi) < 0)
        return tp_fail(err, "'%s', %llu bytes: %s", tx->path, (unsigned long long)meta.length,
                       strerror(errno));
    if (cache_reserve(&tx->cache, fcast_sender_repair_bytes(tx->sender), err) < 0)
        return -1;
    if (fcast_sender_commit(tx->sender) < 0)
        return tp_fail(err, "descriptor: %s", strerror(errno));
    outgoing_begin(&tx->out, tx->sender, cfg.symbol_bytes, cfg.random);
    return 0;
}

static void note(struct fcast_tx *tx, bool is_complete)
{
    struct fcast_sender_stats st;

    fcast_sender_get_stats(tx->sender, &st);
    pthread_mutex_lock(&tx->control.lock);
    tx->stats = (struct fcast_tx_stats){.sent = st.sent,
                                        .rounds = st.rounds,
                                        .index = st.index,
                                        .is_complete = is_complete,
                                        .errors = st.errors + tx->out.batch.send_errors};
    pthread_mutex_unlock(&tx->control.lock);
}

static void *run(void *arg)
{
    struct fcast_tx *tx = arg;
    bool is_ending = false, has_more = true;

    while (!is_ending && (has_more = outgoing_send(&tx->out, tp_now_ns()))) {
        note(tx, false);
        outgoing_wait(&tx->out, tp_now_ns(), tx->control.wake_fd);
        is_ending = control_is_ending(&tx->control);
    }
    outgoing_say_goodbye(&tx->out);
    struct fcast_sender_stats st;
    fcast_sender_get_stats(tx->sender, &st);
    const bool is_complete = !has_more && !st.errors;
    note(tx, is_complete);
    if (is_complete && tx->options.on_complete)
        tx->options.on_complete(tx->options.ctx);
    return NULL;
}

int fcast_tx_start(struct fcast_tx *tx, const char *file, double redundancy,
                   char why[FCAST_CONTROL_WHY])
{
    struct tp_error err;

    if (tx->control.is_running)
        return control_why(why, "already sending; call fcast_tx_stop() first");
    if (!(redundancy <= REDUNDANCY_MAX)) {
        snprintf(why, FCAST_CONTROL_WHY, "redundancy %g; valid: up to %d", redundancy,
                 REDUNDANCY_MAX);
        return -1;
    }
    tx->path = strdup(file);
    if (!tx->path)
        return control_why(why, strerror(ENOMEM));
    int result = prepare(tx, redundancy, &err);
    if (result < 0) {
        control_why(why, err.text);
    } else {
        note(tx, false);
        result = control_start(&tx->control, run, tx, why);
    }
    if (result < 0)
        close_start(tx);
    return result;
}

void fcast_tx_stop(struct fcast_tx *tx)
{
    control_stop(&tx->control);
    close_start(tx);
}

void fcast_tx_get_stats(struct fcast_tx *tx, struct fcast_tx_stats *out)
{
    pthread_mutex_lock(&tx->control.lock);
    *out = tx->stats;
    pthread_mutex_unlock(&tx->control.lock);
}

void fcast_tx_free(struct fcast_tx *tx)
{
    if (!tx)
        return;
    fcast_tx_stop(tx);
    control_free(&tx->control);
    free(tx->cache_folder);
    free(tx);
}
