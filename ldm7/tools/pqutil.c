/* SPDX-License-Identifier: Apache-2.0
 *
 * Examines a product queue, and changes single things.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/feedtype.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/selection.h"
#include "common/tool.h"
#include "queue/pq.h"

enum { NOT_THERE = 3, CLIENTS_MAX = 512 };

static const char help[] =
    "Usage: pqutil -q QUEUE [-f FEED] [-p PATTERN] COMMAND [PRODUCT]\n"
    "  list                   print a line for each product (-f, -p: only these), oldest first: position,\n"
    "                         insertion time, signature, size, creation, feed, number, identifier, origin\n"
    "  find PRODUCT           print its line\n"
    "  get PRODUCT            write its data\n"
    "  delete PRODUCT         remove it\n"
    "  stats                  print all counters, as NAME=VALUE\n"
    "  clients                list the processes that have the queue open: pid, alive or killed, reader or\n"
    "                         writer, products pinned, reservations, bytes reserved\n"
    "  reset                  reset the shortest residence time (pqmon's minVirtResTime)\n"
    "PRODUCT is a signature (32 hexadecimal digits) or a position.\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -f, --feed FEED        feed types (default ANY)\n"
    "  -p, --pattern ERE      identifiers that match\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 system error, 2 bad usage, or QUEUE is not a product queue, 3 no such\n"
    "product.\n";

static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"feed", required_argument, NULL, 'f'},
    {"pattern", required_argument, NULL, 'p'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

static bool to_signature(const char *text, struct pq_signature *out)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 2 * sizeof out->bytes)
        return false;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; text[i]; i++) {
        const char *d = strchr(digits, text[i] | 0x20);
        if (!d || (text[i] < 'A' && text[i] > '9'))
            return false;
        out->bytes[i / 2] = (uint8_t)(out->bytes[i / 2] << 4 | (d - digits));
    }
    return true;
}

/* Finds the product that a user names, and pins it; else returns an exit code, after a message. */
static int find(struct pq *q, const char *text, struct pq_view *v)
{
    enum pq_status s;
    struct pq_signature sig;
    if (to_signature(text, &sig)) {
        s = pq_find(q, &sig, v);
    } else {
        uint64_t seq = tool_u64("PRODUCT", text, 1, UINT64_MAX);
        s = pq_next(q, seq - 1, v);
        if (!s && v->seq != seq) {
            pq_release(q, v);
            s = PQ_END;
        }
    }
    if (s)
        log_error("Product \"%s\": %s", text, s == PQ_END ? "there is none" : pq_strerror(s));
    return s == PQ_OK ? TOOL_OK : s == PQ_END ? NOT_THERE : TOOL_SYSTEM;
}

static void print_product(const struct pq_view *v)
{
    char line[PRODUCT_LINE_MAX], escaped[4 * PRODUCT_LINE_MAX];
    log_escape(escaped, sizeof escaped, product_line_format(&v->info, line, sizeof line));
    char origin[4 * PQ_ORIGIN_MAX + 1];
    log_escape(origin, sizeof origin, v->info.origin);
    char hex[33];
    printf("%llu %lld.%06ld %s %s %s\n", (unsigned long long)v->seq, (long long)v->inserted.tv_sec,
           (long)v->inserted.tv_usec, signature_format(&v->info.signature, hex), escaped, origin);
}

static int list(struct pq *q, const struct selection *wanted)
{
    struct pq_view v;
    for (uint64_t after = 0; !tool_stop && pq_next(q, after, &v) == PQ_OK;
         after = v.seq, pq_release(q, &v))
        if (selection_has(wanted, &v.info))
            print_product(&v);
    return TOOL_OK;
}

static int one(struct pq *q, const char *command, const char *text)
{
    struct pq_view v;
    int code = find(q, text, &v);
    if (code)
        return code;
    if (strcmp(command, "find") == 0) {
        print_product(&v);
    } else if (strcmp(command, "get") == 0) {
        if (fwrite(v.data, 1, v.info.size, stdout) != v.info.size)
            code = TOOL_SYSTEM;
    } else {
        enum pq_status s = pq_remove(q, v.seq);
        if (s) {
            log_error("Product \"%s\" cannot be deleted: %s", text, pq_strerror(s));
            code = s == PQ_END ? NOT_THERE : TOOL_SYSTEM;
        }
    }
    pq_release(q, &v);
    return code;
}

static int stats(struct pq *q)
{
    struct pq_stats s;
    pq_get_stats(q, &s);
#define SHOW(member) printf(#member "=%llu\n", (unsigned long long)s.member)
    SHOW(data_bytes);
    SHOW(used_bytes);
    SHOW(high_water_bytes);
    SHOW(largest_free_bytes);
    SHOW(free_extents);
    SHOW(high_water_free_extents);
    SHOW(slots);
    SHOW(used_slots);
    SHOW(high_water_slots);
    SHOW(reserved_slots);
    SHOW(high_water_occupied);
    SHOW(inserted);
    SHOW(evicted);
    SHOW(removed);
    SHOW(duplicates);
    SHOW(recoveries);
    SHOW(unclean);
#undef SHOW
    printf("age_oldest_s=%.3f\nage_youngest_s=%.3f\nmin_residence_s=%.3f\n", s.age_oldest_s,
           s.age_youngest_s, s.min_residence_s);
    if (s.min_residence_s >= 0)
        printf("min_residence_bytes=%llu\nmin_residence_slots=%u\n",
               (unsigned long long)s.min_residence_bytes, s.min_residence_slots);
    return TOOL_OK;
}

static int show_clients(struct pq *q)
{
    static struct pq_client_info clients[CLIENTS_MAX];
    unsigned n = pq_clients(q, clients, CLIENTS_MAX);
    for (unsigned i = 0; i < n && i < CLIENTS_MAX; i++) {
        const struct pq_client_info *c = &clients[i];
        if (!c->self)
            printf("%d %s %s %u %u %llu\n", c->pid, c->alive ? "alive" : "killed",
                   c->writes ? "writer" : "reader", c->pins, c->reservations,
                   (unsigned long long)c->reserved_bytes);
    }
    return TOOL_OK;
}

/* The requirements of a command. */
static const struct command {
    const char *name;
    bool product, writes;
} commands[] = {{"list", false, false}, {"find", true, false},   {"get", true, false},
                {"delete", true, true}, {"stats", false, false}, {"clients", false, false},
                {"reset", false, true}};

static const struct command *command_of(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    tool_usage("found command \"%s\"; valid: list, find, get, delete, stats, clients, reset", name);
}

int main(int argc, char **argv)
{
    const char *queue = NULL;
    struct selection wanted = {.feed = FEEDTYPE_ANY};
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:f:p:", options, NULL)) != -1;) {
        switch (c) {
        case 'q': queue = optarg; break;
        case 'f': wanted.feed = tool_feed(optarg); break;
        case 'p': selection_pattern(&wanted, optarg); break;
        default: tool_option(c, help);
        }
    }
    if (optind == argc)
        tool_usage("COMMAND is missing");
    const struct command *c = command_of(argv[optind++]);
    const char *product = c->product && optind < argc ? argv[optind++] : NULL;
    if (c->product && !product)
        tool_usage("%s: PRODUCT is missing", c->name);
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    struct pq *q = tool_open(queue, c->writes);
    tool_catch_signals();
    int code = product                           ? one(q, c->name, product)
               : strcmp(c->name, "list") == 0    ? list(q, &wanted)
               : strcmp(c->name, "stats") == 0   ? stats(q)
               : strcmp(c->name, "clients") == 0 ? show_clients(q)
               : pq_reset(q, PQ_RESET_RESIDENCE) ? TOOL_SYSTEM
                                                 : TOOL_OK;
    if (fflush(stdout) != 0) {
        log_error("standard output cannot be written: %s", strerror(errno));
        code = TOOL_SYSTEM;
    }
    selection_free(&wanted);
    pq_close(q);
    return code;
}
