/* SPDX-License-Identifier: Apache-2.0 */
#include "counters.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "fmtp_events.h"
#include "qlog.h"
#include "stats_read.h"

#define PATH_BYTES 4096
#define RECEIVERS_MAX 256 /* fmtp_server_config's default */

static const struct stats_column ldmd_columns[] = {LDMD_COUNTERS(STATS_COLUMN)};
static const struct stats_column mldm_columns[] = {MLDM_COUNTERS(STATS_COLUMN)};
static const struct stats_column down7_columns[] = {DOWN7_COUNTERS(STATS_COLUMN)};
static const struct stats_column server_columns[] = {FMTP_SERVER_COUNTERS(STATS_COLUMN)};
static const struct stats_column peer_columns[] = {FMTP_PEER_COUNTERS(STATS_COLUMN)};
static const struct stats_column client_columns[] = {FMTP_CLIENT_COUNTERS(STATS_COLUMN)};
#define N(columns) (sizeof(columns) / sizeof(columns)[0])

static const struct stats_table ldmd_tables[] = {
    {.name = "ldmd", .columns = ldmd_columns, .ncolumns = N(ldmd_columns), .nrows = 1}};
enum { MLDM_OWN, MLDM_SENDER, MLDM_PEERS };
static const struct stats_table mldm_tables[] = {
    {.name = "mldm", .columns = mldm_columns, .ncolumns = N(mldm_columns), .nrows = 1},
    {.name = "fmtp_sender", .columns = server_columns, .ncolumns = N(server_columns), .nrows = 1},
    {.name = "fmtp_peer",
     .keys = {"receiver"},
     .columns = peer_columns,
     .ncolumns = N(peer_columns),
     .nrows = RECEIVERS_MAX}};
enum { DOWN7_OWN, DOWN7_RECEIVER };
static const struct stats_table down7_tables[] = {
    {.name = "down7", .columns = down7_columns, .ncolumns = N(down7_columns), .nrows = 1},
    {.name = "fmtp_receiver",
     .columns = client_columns,
     .ncolumns = N(client_columns),
     .nrows = 1}};

bool counters_dir(char *out, size_t out_bytes, const char *queue)
{
    int n = snprintf(out, out_bytes, "%s.stats", queue);

    return n > 0 && (size_t)n < out_bytes;
}

static struct stats_page *open_page(const struct options *opt, const struct stats_spec *spec)
{
    char dir[PATH_BYTES];

    if (!opt->conf->set.stats)
        return NULL;
    errno = ENAMETOOLONG;
    struct stats_page *p = counters_dir(dir, sizeof dir, opt->queue) ? stats_open(dir, spec) : NULL;
    if (!p)
        log_warn("no counters page in %s.stats: %s", opt->queue, strerror(errno));
    return p;
}

struct qlog *counters_qlog(const struct options *opt, const char *program)
{
    struct qlog *q = opt->qlog ? qlog_open(opt->qlog, program, FMTP_EVENTS_SCHEMA) : NULL;

    if (opt->qlog && !q)
        log_warn("no events in %s: %s", opt->qlog, strerror(errno));
    return q;
}

struct stats_page *counters_ldmd(const struct options *opt, uint16_t port)
{
    char text[8];
    const struct stats_spec spec = {.program = "ldmd",
                                    .keys = {"port"},
                                    .texts = {text},
                                    .tables = ldmd_tables,
                                    .ntables = N(ldmd_tables)};

    snprintf(text, sizeof text, "%u", port);
    return open_page(opt, &spec);
}

struct stats_page *counters_mldm(const struct options *opt, const struct conf_multicast *entry)
{
    char feed[FEEDTYPE_TEXT_MAX];
    const struct stats_spec spec = {.program = "mldm",
                                    .keys = {"feed"},
                                    .texts = {feedtype_format(entry->feed, feed, sizeof feed)},
                                    .tables = mldm_tables,
                                    .ntables = N(mldm_tables)};

    return open_page(opt, &spec);
}

struct stats_page *counters_down7(const struct options *opt, const struct conf_receive *rcv)
{
    char feed[FEEDTYPE_TEXT_MAX], upstream[CONF_TEXT + 8];
    const struct stats_spec spec = {
        .program = "down7",
        .keys = {"feed", "upstream"},
        .texts = {feedtype_format(rcv->feed, feed, sizeof feed), upstream},
        .tables = down7_tables,
        .ntables = N(down7_tables)};

    snprintf(upstream, sizeof upstream, "%s:%u", rcv->host, rcv->port);
    return open_page(opt, &spec);
}

void counters_remove(const struct options *opt, const char *program, pid_t pid)
{
    char path[PATH_BYTES], name[64];

    if (!opt->conf->set.stats || !counters_dir(path, sizeof path, opt->queue))
        return;
    size_t n = strlen(path);
    stats_file_name(name, sizeof name, program, pid);
    if (snprintf(path + n, sizeof path - n, "/%s", name) < (int)(sizeof path - n))
        unlink(path);
}

void counters_sweep(const struct options *opt)
{
    char path[PATH_BYTES], why[STATS_WHY];

    if (!opt->conf->set.stats || !counters_dir(path, sizeof path, opt->queue))
        return;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stats_image image;
        if (e->d_name[0] == '.' || !stats_load(&image, dirfd(dir), e->d_name, why))
            continue;
        if (!stats_alive(&image))
            unlinkat(dirfd(dir), e->d_name, 0);
        stats_free(&image);
    }
    if (dir)
        closedir(dir);
}

/* ------------------------------------------------------------------ writing */

/* The structs made from the lists are arrays of uint64_t. */
#define VALUES(s) ((const uint64_t *)(const void *)(s))
#define TAKE(field, kind, decimals, help) v.field = from.field;

void counters_put_ldmd(struct stats_page *p, const struct ldmd_counters *own)
{
    stats_write(p, 0, 0, NULL, VALUES(own));
}

static void put_peers(struct stats_page *p, struct fmtp_server *server)
{
    static struct fmtp_receiver_place places[RECEIVERS_MAX];
    size_t n = fmtp_server_get_receivers(server, places, RECEIVERS_MAX);

    for (unsigned i = 0; i < n && i < RECEIVERS_MAX; i++) {
        char text[TP_ADDRESS_TEXT];
        if (places[i].address.ss_family == AF_UNSPEC) {
            stats_forget(p, MLDM_PEERS, i);
            continue;
        }
        tp_address_text((const struct sockaddr *)&places[i].address, text);
        stats_write(p, MLDM_PEERS, i, (const char *[STATS_LABELS]){text},
                    VALUES(&places[i].counts));
    }
}

void counters_put_mldm(struct stats_page *p, const struct mldm_counters *own,
                       struct fmtp_server *server)
{
    struct {
        FMTP_SERVER_COUNTERS(STATS_FIELD)
    } v;
    struct fmtp_server_stats from;

    fmtp_server_get_stats(server, &from);
    FMTP_SERVER_COUNTERS(TAKE)
    stats_write(p, MLDM_OWN, 0, NULL, VALUES(own));
    stats_write(p, MLDM_SENDER, 0, NULL, VALUES(&v));
    put_peers(p, server);
}

void counters_put_down7(struct stats_page *p, const struct down7_counters *own,
                        const struct client_counters *fmtp)
{
    stats_write(p, DOWN7_OWN, 0, NULL, VALUES(own));
    stats_write(p, DOWN7_RECEIVER, 0, NULL, VALUES(fmtp));
}

void counters_add_client(struct client_counters *sum, const struct fmtp_client *client)
{
#define ADD(field, kind, decimals, help) sum->field += s.field;
    struct fmtp_client_stats s;

    fmtp_client_get_stats(client, &s);
    FMTP_CLIENT_COUNTERS(ADD)
#undef ADD
}

uint64_t counters_timestamp(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

bool counters_due(struct counters_pace *pace, uint64_t now)
{
    pace->waits = now < pace->due_ns;
    if (!pace->waits)
        pace->due_ns = now + COUNTERS_NS;
    return !pace->waits;
}

uint64_t counters_deadline(const struct counters_pace *pace)
{
    return pace->waits ? pace->due_ns : LOOP_FOREVER;
}
