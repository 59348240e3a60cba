/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks whether there is an LDM server, and how long it takes to answer.
 */
#include <stdio.h>
#include <unistd.h>

#include "common/log.h"
#include "common/tool.h"
#include "ldmd/client.h"

static const char help[] =
    "Usage: ldmping [-t SECONDS] [-i SECONDS] [-P PORT] [-q] [-h HOST] [HOST[:PORT] ...]\n"
    "Connects to LDM servers, calls their null procedure and logs the time of both.\n"
    "  -h, --host HOST        a server (default localhost); give more as arguments\n"
    "  -P, --port PORT        port of servers without :PORT (default 388)\n"
    "  -t, --timeout SECONDS  wait this long for each (default 10)\n"
    "  -i, --interval SECONDS repeat every SECONDS; 0: once (default 25 on a terminal, else 0)\n"
    "  -q, --quiet            print no lines, only set the exit status\n" TOOL_HELP_TEXT
    "Here -h names a host; --help prints the help. Exit status: 0 all respond (at the last time),\n"
    "1 one does not, 2 bad usage.\n";

enum { HOSTS_MAX = 1000 };
static const struct option options[] = {
    {"host", required_argument, NULL, 'h'},
    {"port", required_argument, NULL, 'P'},
    {"timeout", required_argument, NULL, 't'},
    {"interval", required_argument, NULL, 'i'},
    {"quiet", no_argument, NULL, 'q'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};
static const char *const states[] = {"NAMED", "ADDRESSED", "SVC_UNAVAIL", "H_CLNT_FAILED",
                                     "RESPONDING"};

struct target {
    char *host;
    uint16_t port;
};

static bool ping(struct client *c, const struct target *t, double timeout_s)
{
    uint64_t start = now_ns();
    bool ok = client_connect(c, t->host, t->port, timeout_s, NULL) && client_null(c, timeout_s);

    log_info("%10s %10.6f %4u   %-21s %s", states[c->state], (double)(now_ns() - start) / 1e9,
             t->port, t->host, ok ? "" : c->why);
    client_disconnect(c);
    return ok;
}

static bool round_of_all(struct client *c, const struct target *list, int n, double timeout_s)
{
    bool all = true;

    for (int i = 0; i < n && !c->loop.stop; i++)
        all = ping(c, &list[i], timeout_s) && all;
    return all;
}

static void pause_until(struct client *c, uint64_t due)
{
    while (!c->loop.stop && now_ns() < due)
        loop_once(&c->loop, due);
}

int main(int argc, char **argv)
{
    static char localhost[] = "localhost";
    double timeout_s = 10, interval_s = isatty(STDERR_FILENO) ? 25 : 0;
    uint16_t port = LDM_PORT;
    bool quiet = false;
    int n = 0;

    log_init(argc, &argv);
    log_set_level(LOG_LVL_INFO);
    char *hosts[HOSTS_MAX];
    int opt;
    while ((opt = getopt_long(argc, argv, "h:P:t:i:qvxl:", options, NULL)) != -1) {
        if (n == HOSTS_MAX)
            tool_usage("found more hosts than %d", HOSTS_MAX);
        switch (opt) {
        case 'h':
            if (!optarg) /* --help */
                tool_option('h', help);
            hosts[n++] = optarg;
            break;
        case 'P': port = (uint16_t)tool_u64("--port", optarg, 1, 65535); break;
        case 't': timeout_s = tool_real("--timeout", optarg, 0.001, 86400); break;
        case 'i': interval_s = tool_real("--interval", optarg, 0, 86400); break;
        case 'q': quiet = true; break;
        default: tool_option(opt, help);
        }
    }
    if (argc - optind > HOSTS_MAX - n)
        tool_usage("found %d hosts; valid: at most %d", n + argc - optind, HOSTS_MAX);
    while (optind < argc)
        hosts[n++] = argv[optind++];
    if (n == 0)
        hosts[n++] = localhost;
    struct target list[HOSTS_MAX];
    for (int i = 0; i < n; i++) {
        list[i].host = hosts[i];
        list[i].port = client_port(hosts[i], port);
    }
    if (quiet)
        log_set_level(LOG_LVL_ERROR);
    struct client c;
    if (client_init(&c) < 0)
        return TOOL_SYSTEM;
    log_info("%10s %10s %4s   %-21s %s", "State", "Elapsed", "Port", "Remote_Host", "rpc_stat");
    bool all;
    do {
        uint64_t next = client_deadline(interval_s);

        all = round_of_all(&c, list, n, timeout_s);
        if (interval_s > 0)
            pause_until(&c, next);
    } while (interval_s > 0 && !c.loop.stop);
    client_end(&c);
    return all ? TOOL_OK : TOOL_SYSTEM;
}
