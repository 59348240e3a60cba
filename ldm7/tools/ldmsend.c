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

#include "client.h"
#include "digest.h"
#include "intake.h"
#include "log.h"
#include "product_line.h"
#include "tool.h"

static const char help[] =
    "Usage: ldmsend [-h HOST] [-P PORT] [-f FEED] [-s SEQNO] [-t SECONDS] FILE...\n"
    "Sends each FILE as a product, with its name as identifier, to an LDM server that accepts them.\n"
    "  -h, --host HOST        the server (default localhost)\n"
    "  -P, --port PORT        its port (default 388)\n"
    "  -f, --feed FEED        feed type of the products (default EXP)\n"
    "  -s, --seqno NUMBER     sequence number of the first (default 0)\n"
    "  -t, --timeout SECONDS  wait so long for an answer (default 25)\n" TOOL_HELP_TEXT
    "Here -h needs a host: the help is --help. Exit status: 0 the server has taken all, 1 it refuses, or\n"
    "the connection fails, 2 bad usage or a FILE that can not be read.\n";

static const struct option options[] = {
    {"host", required_argument, NULL, 'h'}, {"port", required_argument, NULL, 'P'},
    {"feed", required_argument, NULL, 'f'}, {"seqno", required_argument, NULL, 's'},
    {"timeout", required_argument, NULL, 't'}, TOOL_LONG, {NULL, 0, NULL, 0}};

struct job {
    const char *host;
    uint16_t port;
    uint32_t feed, seqno, max_hereis;
    double timeout_s;
    struct client c;
    struct matcher accepted;
    struct ldm6_reply reply;
    uint32_t code;                     /* of COMINGSOON's answer */
    char origin[PQ_ORIGIN_MAX + 1];
};

static void put_class(struct xout *x, const void *arg)
{
    xout_class(x, arg);
}

static bool take_hiya(struct xin *body, void *arg)
{
    struct job *j = arg;

    xin_ldm6_reply(body, true, &j->reply);
    return xin_done(body);
}

static bool take_code(struct xin *body, void *arg)
{
    struct job *j = arg;

    j->code = xin_u32(body);
    return xin_done(body);
}

static bool hiya(struct job *j)
{
    struct ldm_class cls = {.to = LDM_TIME_END, .n = 1, .specs = {{j->feed, ".*"}}};
    uint32_t xid = peer_call(&j->c.peer, LDM_VERS6, LDM6_HIYA, put_class, &cls);
    char text[1024];

    if (!client_answer(&j->c, xid, j->timeout_s, take_hiya, j))
        return false;
    if (j->reply.code == LDM6_RECLASS && j->reply.cls.n > 0) {
        cls = j->reply.cls;
        log_note("%s accepts only %s", j->host, class_format(&cls, text, sizeof text));
    } else if (j->reply.code != LDM6_OK) {
        snprintf(j->c.why, sizeof j->c.why, "the server does not accept the feed");
        return false;
    }
    j->max_hereis = j->reply.value;
    return matcher_init(&j->accepted, &cls, j->c.why, sizeof j->c.why) == 0;
}

static void put_coming(struct xout *x, const void *arg)
{
    const struct pq_info *info = arg;

    xout_info(x, info);
    xout_u32(x, info->size);
}

static bool send_product(struct job *j, const struct pq_view *v)
{
    char line[PRODUCT_LINE_MAX];

    product_line_format(&v->info, line, sizeof line);
    if (!matcher_wants(&j->accepted, &v->info)) {
        log_warn("not accepted by %s: %s", j->host, line);
        return true;
    }
    if (v->info.size <= j->max_hereis) {
        peer_send_product(&j->c.peer, LDM_VERS6, LDM6_HEREIS, false, 0, NULL, v);
    } else {
        uint32_t xid = peer_call(&j->c.peer, LDM_VERS6, LDM6_COMINGSOON, put_coming, &v->info);

        if (!client_answer(&j->c, xid, j->timeout_s, take_code, j))
            return false;
        if (j->code == LDM6_DONT_SEND) {
            log_info("not wanted: %s", line);
            return true;
        }
        peer_send_product(&j->c.peer, LDM_VERS6, LDM6_BLKDATA, false, 0, NULL, v);
    }
    if (!client_flush(&j->c, j->timeout_s))
        return false;
    log_info("sent: %s", line);
    return true;
}

/* The file as a product; data from mmap, or NULL if it is empty. Ends the program if it is none. */
static void *load(struct job *j, const char *name, struct pq_view *v)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *at = NULL;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        log_error("cannot read \"%s\": %s", name, fd < 0 ? strerror(errno) : "no regular file");
        exit(TOOL_USAGE);
    }
    if (strlen(name) == 0 || strlen(name) > PQ_IDENT_MAX || st.st_size > UINT32_MAX) {
        log_error("\"%s\" can be no product; valid: a name of 1 to %d bytes, at most 4294967295 bytes",
                  name, PQ_IDENT_MAX);
        exit(TOOL_USAGE);
    }
    *v = (struct pq_view){.info = {.feedtype = j->feed, .seqno = j->seqno++, .size = (uint32_t)st.st_size}};
    snprintf(v->info.ident, sizeof v->info.ident, "%s", name);
    memcpy(v->info.origin, j->origin, sizeof j->origin);
    gettimeofday(&v->info.creation, NULL);
    if (st.st_size > 0)
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (at == MAP_FAILED || !digest_of(at == NULL ? "" : at, v->info.size, &v->info.signature)) {
        log_error("cannot read \"%s\": %s", name, strerror(errno));
        exit(TOOL_SYSTEM);
    }
    v->data = at;
    return at;
}

static bool send_all(struct job *j, char **names, int n)
{
    struct pq_view v;
    bool ok = hiya(j);

    for (int i = 0; i < n && ok; i++) {
        void *at = load(j, names[i], &v);

        ok = send_product(j, &v);
        if (!ok)
            client_disconnect(&j->c);  /* nothing refers to the data any more */
        if (at != NULL)
            munmap(at, v.info.size);
    }
    return ok && client_null(&j->c, j->timeout_s);
}

int main(int argc, char **argv)
{
    struct job j = {.host = "localhost", .port = LDM_PORT, .feed = 0x40000000, .timeout_s = 25};
    bool ok;
    int opt;

    log_init(argc, &argv);
    while ((opt = getopt_long(argc, argv, "h:P:f:s:t:vxl:", options, NULL)) != -1) {
        switch (opt) {
        case 'h':
            if (optarg == NULL)        /* --help */
                tool_option('h', help);
            j.host = optarg;
            break;
        case 'P': j.port = (uint16_t)tool_u64("--port", optarg, 1, 65535); break;
        case 'f': j.feed = tool_feed(optarg); break;
        case 's': j.seqno = (uint32_t)tool_u64("--seqno", optarg, 0, UINT32_MAX); break;
        case 't': j.timeout_s = tool_real("--timeout", optarg, 0.001, 86400); break;
        default: tool_option(opt, help);
        }
    }
    if (optind == argc)
        tool_usage("found no FILE; valid: one or more");
    gethostname(j.origin, sizeof j.origin - 1);
    if (client_init(&j.c) < 0)
        return TOOL_SYSTEM;
    ok = client_connect(&j.c, j.host, j.port, j.timeout_s, NULL) &&
         send_all(&j, argv + optind, argc - optind);
    if (!ok)
        log_error("%s:%u: %s", j.host, j.port, j.c.why);
    matcher_free(&j.accepted);
    client_end(&j.c);
    return ok ? TOOL_OK : TOOL_SYSTEM;
}
