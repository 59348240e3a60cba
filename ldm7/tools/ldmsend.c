/* SPDX-License-Identifier: Apache-2.0
 *
 * Pushes files as products to an LDM server (HIYA; the server needs an ACCEPT entry for us).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "common/tool.h"
#include "ldmd/push.h"

static const char help[] =
    "Usage: ldmsend [-h HOST] [-P PORT] [-f FEED] [-s SEQNO] [-t SECONDS] FILE...\n"
    "Sends each FILE as a product, with its name as identifier, to an LDM server that accepts them.\n"
    "  -h, --host HOST        the server (default localhost)\n"
    "  -P, --port PORT        its port (default 388)\n"
    "  -f, --feed FEED        feed type of the products (default EXP)\n"
    "  -s, --seqno NUMBER     sequence number of the first (default 0)\n"
    "  -t, --timeout SECONDS  wait this long for an answer (default 25)\n" TOOL_HELP_TEXT
    "Here -h names a host; --help prints the help. Exit status: 0 the server accepted all files, 1 it refused,\n"
    "or the connection failed, 2 bad usage or an unreadable FILE.\n";

static const struct option options[] = {
    {"host", required_argument, NULL, 'h'},
    {"port", required_argument, NULL, 'P'},
    {"feed", required_argument, NULL, 'f'},
    {"seqno", required_argument, NULL, 's'},
    {"timeout", required_argument, NULL, 't'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

struct job {
    struct push push;
    uint32_t feed, seqno;
    char origin[PQ_ORIGIN_MAX + 1];
};

/* Loads the file as a product; data from mmap(), or NULL if it is empty. Ends the program if the
 * file is invalid. */
static void *load(struct job *j, const char *name, struct pq_view *v)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    void *at = NULL;

    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        log_error("cannot read \"%s\": %s", name, fd < 0 ? strerror(errno) : "not a regular file");
        exit(TOOL_USAGE);
    }
    if (strlen(name) == 0 || strlen(name) > PQ_IDENT_MAX || st.st_size > UINT32_MAX) {
        log_error(
            "\"%s\" cannot be a product; valid: a name of 1 to %d bytes, at most 4294967295 bytes",
            name, PQ_IDENT_MAX);
        exit(TOOL_USAGE);
    }
    *v = (struct pq_view){
        .info = {.feedtype = j->feed, .seqno = j->seqno++, .size = (uint32_t)st.st_size}};
    snprintf(v->info.ident, sizeof v->info.ident, "%s", name);
    memcpy(v->info.origin, j->origin, sizeof j->origin);
    gettimeofday(&v->info.creation, NULL);
    if (st.st_size > 0)
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (at == MAP_FAILED || !digest_of(!at ? "" : at, v->info.size, &v->info.signature)) {
        log_error("cannot read \"%s\": %s", name, strerror(errno));
        exit(TOOL_SYSTEM);
    }
    v->data = at;
    return at;
}

static bool send_all(struct job *j, char **names, int n)
{
    bool ok = push_begin(&j->push, j->feed);

    struct pq_view v;
    for (int i = 0; i < n && ok; i++) {
        void *at = load(j, names[i], &v);

        ok = push_product(&j->push, &v);
        if (!ok)
            client_disconnect(&j->push.c); /* nothing refers to the data any more */
        if (at)
            munmap(at, v.info.size);
    }
    return ok && push_taken(&j->push);
}

int main(int argc, char **argv)
{
    struct job j = {.push = {.host = "localhost", .port = LDM_PORT, .timeout_s = 25},
                    .feed = FEEDTYPE_EXP};
    struct push *push = &j.push;

    log_init(argc, &argv);
    int opt;
    while ((opt = getopt_long(argc, argv, "h:P:f:s:t:vxl:", options, NULL)) != -1) {
        switch (opt) {
        case 'h':
            if (!optarg) /* --help */
                tool_option('h', help);
            push->host = optarg;
            break;
        case 'P': push->port = (uint16_t)tool_u64("--port", optarg, 1, 65535); break;
        case 'f': j.feed = tool_feed(optarg); break;
        case 's': j.seqno = (uint32_t)tool_u64("--seqno", optarg, 0, UINT32_MAX); break;
        case 't': push->timeout_s = tool_real("--timeout", optarg, 0.001, 86400); break;
        default: tool_option(opt, help);
        }
    }
    if (optind == argc)
        tool_usage("found no FILE; valid: one or more");
    gethostname(j.origin, sizeof j.origin - 1);
    if (client_init(&push->c) < 0)
        return TOOL_SYSTEM;
    bool ok = send_all(&j, argv + optind, argc - optind);
    if (!ok)
        log_error("%s:%u: %s", push->host, push->port, push->c.why);
    push_end(push);
    client_end(&push->c);
    return ok ? TOOL_OK : TOOL_SYSTEM;
}
