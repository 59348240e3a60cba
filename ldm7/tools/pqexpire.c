/* SPDX-License-Identifier: Apache-2.0
 *
 * Removes old products from a product queue.
 */
#include <stdio.h>
#include <sys/time.h>

#include "common/feedtype.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/selection.h"
#include "common/tool.h"
#include "queue/pq.h"

static const char help[] =
    "Usage: pqexpire -q QUEUE [-a HOURS] [-i SECONDS] [-f FEED] [-p PATTERN]\n"
    "Removes products that were created more than HOURS ago. (A queue does not need pqexpire: new\n"
    "products replace the oldest ones anyway.) It also removes a product that a process is reading;\n"
    "that process can continue to read.\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -a, --age HOURS        age of products to remove (default 1.0833)\n"
    "  -i, --interval SECONDS repeat every SECONDS, until SIGINT or SIGTERM (default 300; 0: once)\n"
    "  -f, --feed FEED        only products of these feed types (default ANY)\n"
    "  -p, --pattern ERE      only products whose identifier matches\n"
    "  -w                     no effect: there are no locks to wait for\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 system error, 2 bad usage, or QUEUE is not a product queue.\n";

static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"age", required_argument, NULL, 'a'},
    {"interval", required_argument, NULL, 'i'},
    {"feed", required_argument, NULL, 'f'},
    {"pattern", required_argument, NULL, 'p'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

static bool is_older(const struct timeval *t, double age_s, const struct timeval *now)
{
    return (double)now->tv_sec - (double)t->tv_sec + (double)(now->tv_usec - t->tv_usec) / 1e6 >
           age_s;
}

/* One pass. Returns false if the queue failed. */
static bool expire(struct pq *q, const struct selection *wanted, double age_s)
{
    unsigned long long products = 0, bytes = 0;
    enum pq_status s = PQ_OK;
    struct timeval now;
    gettimeofday(&now, NULL);
    struct pq_view v;
    for (uint64_t after = 0; !s && !tool_stop && (s = pq_next(q, after, &v)) == PQ_OK;
         after = v.seq) {
        struct pq_info info = v.info;
        pq_release(q, &v);
        if (!selection_has(wanted, &info) || !is_older(&info.creation, age_s, &now))
            continue;
        s = pq_remove(q, v.seq);
        if (s == PQ_END) { /* it has made room meanwhile */
            s = PQ_OK;
            continue;
        }
        products += !s;
        bytes += s ? 0 : info.size;
        char line[PRODUCT_LINE_MAX];
        if (!s)
            log_info("Expired: %s", product_line_format(&info, line, sizeof line));
    }
    struct pq_stats st;
    pq_get_stats(q, &st);
    log_note("Expired: products=%llu bytes=%llu left=%u", products, bytes, st.used_slots);
    if (s && s != PQ_END)
        log_error("Queue: %s", pq_strerror(s));
    return !s || s == PQ_END;
}

int main(int argc, char **argv)
{
    const char *queue = NULL;
    double age_h = 1.0833, interval_s = 300;
    struct selection wanted = {.feed = FEEDTYPE_ANY};
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:a:i:f:p:w", options, NULL)) != -1;) {
        switch (c) {
        case 'q': queue = optarg; break;
        case 'a': age_h = tool_real("-a", optarg, 0, 1e6); break;
        case 'i': interval_s = tool_real("-i", optarg, 0, 86400); break;
        case 'f': wanted.feed = tool_feed(optarg); break;
        case 'p': selection_pattern(&wanted, optarg); break;
        case 'w': break;
        default: tool_option(c, help);
        }
    }
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    struct pq *q = tool_open(queue, true);
    tool_catch_signals();
    bool ok;
    for (;;) {
        ok = expire(q, &wanted, age_h * 3600);
        if (!ok || interval_s <= 0)
            break;
        tool_wait(-1, interval_s);
        if (tool_stop)
            break;
    }
    selection_free(&wanted);
    pq_close(q);
    return ok ? TOOL_OK : TOOL_SYSTEM;
}
