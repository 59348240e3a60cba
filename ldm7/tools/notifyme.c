/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs which products a server has: requests notifications (NOTIFYME) and logs a line for each.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/product_line.h"
#include "common/tool.h"
#include "ldmd/client.h"
#include "ldmd/intake.h"

static const char help[] =
    "Usage: notifyme [-h HOST] [-P PORT] [-f FEED] [-p PATTERN] [-o SECONDS] [-O] [-T SECONDS]\n"
    "Logs a line for each product that an LDM server has or receives: size, creation time, feed type,\n"
    "sequence number, identifier.\n"
    "  -h, --host HOST        the server (default localhost)\n"
    "  -P, --port PORT        its port (default 388)\n"
    "  -f, --feed FEED        only products of these feed types (default ANY)\n"
    "  -p, --pattern ERE      only products whose identifier matches (default .*)\n"
    "  -o, --offset SECONDS   also products created within the last SECONDS (default 0)\n"
    "  -O, --origin           also log the origin\n"
    "  -T, --total SECONDS    give up when the server is unreachable for this long (default 300)\n"
    "  -t, --timeout SECONDS  wait this long for an answer (default 25)\n" TOOL_HELP_TEXT
    "Here -h names a host; --help prints the help. notifyme logs each product even without -v, and with -x\n"
    "its signature. Exit status: 0 ended by SIGINT or SIGTERM, 1 the server refused or was unreachable,\n"
    "2 bad usage.\n";

static const struct option options[] = {
    {"host", required_argument, NULL, 'h'},
    {"port", required_argument, NULL, 'P'},
    {"feed", required_argument, NULL, 'f'},
    {"pattern", required_argument, NULL, 'p'},
    {"offset", required_argument, NULL, 'o'},
    {"origin", no_argument, NULL, 'O'},
    {"total", required_argument, NULL, 'T'},
    {"timeout", required_argument, NULL, 't'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

enum { SILENCE_S = 300, RECLASS_MAX = 3, PAUSE_S = 2 };

struct job {
    const char *host;
    uint16_t port;
    struct ldm_class cls;
    double timeout_s, total_s;
    bool origin;
    struct client c;
    struct ldm6_reply reply;
    bool have_last; /* the last notification: where to continue after a lost connection */
    struct pq_info last;
};

static void notified(struct job *j, const struct pq_info *info)
{
    char hex[33] = "";
    bool debug = log_enabled(LOG_LVL_DEBUG);

    j->last = *info;
    j->have_last = true;
    if (debug)
        signature_format(&info->signature, hex);
    char line[PRODUCT_LINE_MAX];
    log_info("%s%s%s%s%s", hex, debug ? " " : "", product_line_format(info, line, sizeof line),
             j->origin ? " " : "", j->origin ? info->origin : "");
}

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct job *j = ctx;

    if (m->prog != LDM_PROGRAM || m->vers != LDM_VERS6 ||
        j->c.peer.out_messages > PEER_OUT_MESSAGES)
        return false;
    if (m->proc == LDM6_NULL) {
        peer_reply(&j->c.peer, m->xid, NULL, NULL);
        return true;
    }
    if (m->proc != LDM6_NOTIFICATION)
        return false;
    struct pq_info info;
    xin_info(args, &info);
    if (!xin_done(args))
        return false;
    notified(j, &info);
    return true;
}

static void put_class(struct xout *x, const void *arg)
{
    xout_class(x, arg);
}

static bool take_reply(struct xin *body, void *arg)
{
    struct job *j = arg;

    xin_ldm6_reply(body, false, &j->reply);
    return xin_done(body);
}

/* Requests until the class is granted. Returns false if the connection failed; refusals end the
 * program. */
static bool ask(struct job *j)
{
    struct ldm_class cls = j->cls;

    if (j->have_last) {
        cls.from = info_time(&j->last);
        class_add_signature(&cls, &j->last.signature);
    }
    struct pq_signature sig;
    char text[1024];
    for (int i = 0; i <= RECLASS_MAX; i++) {
        uint32_t xid = peer_call(&j->c.peer, LDM_VERS6, LDM6_NOTIFYME, put_class, &cls);

        if (!client_answer(&j->c, xid, j->timeout_s, take_reply, j))
            return false;
        if (j->reply.code == LDM6_OK)
            return true;
        if (j->reply.code != LDM6_RECLASS || j->reply.cls.n == 0)
            break;
        cls = j->reply.cls;
        class_take_signature(&cls, &sig);
        log_note("%s reduced the request to %s", j->host, class_format(&cls, text, sizeof text));
        if (j->have_last)
            class_add_signature(&cls, &j->last.signature);
    }
    log_error("%s denies the request%s: %s", j->host,
              j->reply.code == LDM6_BADPATTERN ? " (bad pattern)" : "",
              class_format(&j->cls, text, sizeof text));
    exit(TOOL_SYSTEM);
}

/* Runs until the connection ends. Returns whether it was useful. */
static bool session(struct job *j)
{
    struct rpc_sink sink = {.ctx = j, .call = on_call};

    if (!client_connect(&j->c, j->host, j->port, j->timeout_s, &sink) || !ask(j))
        return false;
    while (!j->c.loop.stop) {
        uint64_t due = j->c.peer.last_in_ns + SILENCE_S * NS_PER_S;

        if (!client_turn(&j->c, due))
            break;
        if (now_ns() >= j->c.peer.last_in_ns + SILENCE_S * NS_PER_S) {
            snprintf(j->c.why, sizeof j->c.why, "silent for %d s", SILENCE_S);
            client_disconnect(&j->c);
            break;
        }
    }
    return true;
}

static int run(struct job *j)
{
    uint64_t give_up = client_deadline(j->total_s);

    while (!j->c.loop.stop) {
        if (session(j))
            give_up = client_deadline(j->total_s);
        if (j->c.loop.stop)
            break;
        log_warn("%s:%u: %s", j->host, j->port, j->c.why);
        uint64_t next = client_deadline(PAUSE_S);
        if (next >= give_up) {
            log_error("%s:%u is unreachable: gave up after %g s", j->host, j->port, j->total_s);
            return TOOL_SYSTEM;
        }
        while (!j->c.loop.stop && now_ns() < next)
            loop_once(&j->c.loop, next);
    }
    return TOOL_OK;
}

int main(int argc, char **argv)
{
    struct job j = {.host = "localhost",
                    .port = LDM_PORT,
                    .timeout_s = 25,
                    .total_s = 300,
                    .cls = {.to = LDM_TIME_END, .n = 1, .specs = {{UINT32_MAX, ".*"}}}};
    double offset_s = 0;

    log_init(argc, &argv);
    log_set_level(LOG_LVL_INFO);
    int opt;
    while ((opt = getopt_long(argc, argv, "h:P:f:p:o:OT:t:vxl:", options, NULL)) != -1) {
        switch (opt) {
        case 'h':
            if (!optarg) /* --help */
                tool_option('h', help);
            j.host = optarg;
            break;
        case 'P': j.port = (uint16_t)tool_u64("--port", optarg, 1, 65535); break;
        case 'f': j.cls.specs[0].feedtype = tool_feed(optarg); break;
        case 'p':
            if (snprintf(j.cls.specs[0].pattern, LDM_PATTERN_MAX + 1, "%s", optarg) >
                (int)LDM_PATTERN_MAX)
                tool_usage("--pattern: found more bytes than %u", LDM_PATTERN_MAX);
            break;
        case 'o': offset_s = tool_real("--offset", optarg, 0, 1e9); break;
        case 'O': j.origin = true; break;
        case 'T': j.total_s = tool_real("--total", optarg, 0, 1e9); break;
        case 't': j.timeout_s = tool_real("--timeout", optarg, 0.001, 86400); break;
        default: tool_option(opt, help);
        }
    }
    if (optind < argc)
        tool_usage("found \"%s\"; valid: options only", argv[optind]);
    struct matcher m;
    char why[512];
    if (matcher_init(&m, &j.cls, why, sizeof why) < 0)
        tool_usage("--pattern: %s", why);
    matcher_free(&m);
    j.cls.from = wall_time(offset_s);
    if (client_init(&j.c) < 0)
        return TOOL_SYSTEM;
    int rc = run(&j);
    client_end(&j.c);
    return rc;
}
