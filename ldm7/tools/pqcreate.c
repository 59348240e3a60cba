/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates a product queue.
 */
#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/log.h"
#include "common/tool.h"
#include "queue/pq.h"

static const char help[] =
    "Usage: pqcreate -s SIZE [-S SLOTS] [-c] [-q] PATH\n"
    "Creates a product queue and allocates all of its disk space.\n"
    "  -s, --size SIZE        bytes of product data; suffix k, m, g: 10^3, 10^6, 10^9\n"
    "  -S, --slots SLOTS      maximum number of products (default: one per 100 kB, at least 1000)\n"
    "  -q, --queue PATH       the file\n"
    "  -c, --clobber          replace an existing file\n"
    "  -f, --fast             no effect: pqcreate always allocates space without writing to it\n" TOOL_HELP_TEXT
    "Exit status: 0 created, 1 system error, 2 bad usage.\n";

static const struct option options[] = {
    {"size", required_argument, NULL, 's'},
    {"slots", required_argument, NULL, 'S'},
    {"queue", required_argument, NULL, 'q'},
    {"clobber", no_argument, NULL, 'c'},
    {"fast", no_argument, NULL, 'f'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

enum {
    DATA_MAX_SHIFT = 46,
    SLOTS_MAX = 1 << 24,
    DEFAULT_PRODUCT_BYTES = 100000,
    DEFAULT_SLOTS_MIN = 1000
};

static void human(uint64_t bytes, char out[32])
{
    const char *units[] = {"B", "kB", "MB", "GB", "TB"};
    double x = (double)bytes;
    int u = 0;
    for (; x >= 1000 && u < 4; u++)
        x /= 1000;
    snprintf(out, 32, u ? "%.1f %s" : "%.0f %s", x, units[u]);
}

static int explain(const char *path, uint64_t data_bytes, uint32_t slots)
{
    int e = errno;
    char *copy = strdup(path);
    const char *dir = copy ? dirname(copy) : ".";
    struct statvfs vfs;
    if (e == ENOSPC && statvfs(dir, &vfs) == 0) {
        char need[32];
        human(pq_file_bytes(data_bytes, slots), need);
        char room[32];
        human((uint64_t)vfs.f_bavail * vfs.f_frsize, room);
        log_error(
            "Queue \"%s\" needs %s of disk (%s), but %s are free: choose a smaller -s, or another place",
            path, need, "data and tables", room);
    } else if (e == EEXIST) {
        log_error("Queue \"%s\" exists: -c replaces it", path);
    } else {
        log_error("Queue \"%s\" cannot be created: %s", path, strerror(e));
    }
    free(copy);
    return e == EEXIST || e == ENOENT || e == ENOTDIR || e == ENAMETOOLONG ? TOOL_USAGE
                                                                           : TOOL_SYSTEM;
}

int main(int argc, char **argv)
{
    const char *path = NULL, *size_text = NULL;
    uint64_t size = 0;
    uint32_t slots = 0;
    bool clobber = false;
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "s:S:q:cf", options, NULL)) != -1;) {
        switch (c) {
        case 's':
            size_text = optarg;
            size = tool_bytes("-s", optarg, UINT64_C(1) << DATA_MAX_SHIFT);
            break;
        case 'S': slots = (uint32_t)tool_u64("-S", optarg, 1, SLOTS_MAX); break;
        case 'q': path = optarg; break;
        case 'c': clobber = true; break;
        case 'f': break;
        default: tool_option(c, help);
        }
    }
    if (!path && optind < argc)
        path = argv[optind++];
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    if (!path)
        tool_usage("-q PATH is missing");
    if (!size_text)
        tool_usage("-s SIZE is missing");
    if (!slots) {
        uint64_t n = size / DEFAULT_PRODUCT_BYTES;
        slots = n < DEFAULT_SLOTS_MIN ? DEFAULT_SLOTS_MIN : n > SLOTS_MAX ? SLOTS_MAX : (uint32_t)n;
    }

    /* Not halfway: a signal waits until there is a queue or nothing. */
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGHUP);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    enum pq_status s = pq_create(path, size, slots, clobber);
    int e = errno;
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    errno = e;
    if (s == PQ_SYSTEM)
        return explain(path, size, slots);
    if (s) {
        log_error("Queue \"%s\" cannot be created: %s", path, pq_strerror(s));
        return TOOL_USAGE;
    }
    log_info("Created: \"%s\", %llu bytes of data, %u slots, %llu bytes on disk", path,
             (unsigned long long)size, slots, (unsigned long long)pq_file_bytes(size, slots));
    return TOOL_OK;
}
