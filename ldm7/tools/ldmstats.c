/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the counters that ldmd's processes keep in QUEUE.stats, and those of the queue.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/log.h"
#include "common/tool.h"
#include "stats_read.h"

enum { PAGES_MAX = 1024, BYTES_MAX = 64 << 20 };
enum { PROMETHEUS = TOOL_OWN };

static const char help[] =
    "Usage: ldmstats [-q QUEUE] [-d DIR] [--prometheus]\n"
    "Prints the counters of a queue and of the processes that use it: how much of it each receiver\n"
    "pins, its lag, repairs, rejects and losses.\n"
    "  -q, --queue QUEUE      the queue; the processes' counters are in QUEUE.stats\n"
    "  -d, --dir DIR          read only the files in a directory\n"
    "      --prometheus       print the text format of Prometheus\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 a file was refused or system error, 2 bad usage.\n";

static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"dir", required_argument, NULL, 'd'},
    {"prometheus", no_argument, NULL, PROMETHEUS},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

/* ------------------------------------------------------------------ files */

struct pages {
    struct stats_image images[PAGES_MAX];
    size_t n, bytes;
    bool refused;
};

static void refuse(struct pages *p, const char *dir, const char *name, const char *why)
{
    fprintf(stderr, "ldmstats: %s/%s: %s\n", dir, name, why);
    p->refused = true;
}

static void take(struct pages *p, const char *dir, int fd, const char *name)
{
    struct stats_image image;
    char why[STATS_WHY];

    if (!stats_load(&image, fd, name, why)) {
        /* Otherwise its process has ended. */
        if (faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            refuse(p, dir, name, why);
        return;
    }
    if (!stats_alive(&image)) {
        stats_free(&image);
        return;
    }
    if (p->n == PAGES_MAX || p->bytes + image.n > BYTES_MAX) {
        refuse(p, dir, name, "left out: too many files");
        stats_free(&image);
        return;
    }
    p->bytes += image.n;
    p->images[p->n++] = image;
}

static int by_name(const void *a, const void *b)
{
    const struct stats_image *x = a, *y = b;
    int c = strcmp(x->head.program, y->head.program);

    return c != 0 ? c : (x->head.pid > y->head.pid) - (x->head.pid < y->head.pid);
}

/* If the directory does not exist there are no pages: nothing has run yet. */
static void take_all(struct pages *p, const char *path, bool must)
{
    DIR *dir = opendir(path);

    if (!dir && (must || errno != ENOENT)) {
        log_error("cannot read directory %s: %s", path, strerror(errno));
        exit(TOOL_SYSTEM);
    }
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.')
            take(p, path, dirfd(dir), e->d_name);
    if (dir)
        closedir(dir);
    qsort(p->images, p->n, sizeof p->images[0], by_name);
}

/* ------------------------------------------------------------------ values */

static void print_value(uint64_t value, unsigned decimals, FILE *out)
{
    uint64_t unit = 1;

    for (unsigned i = 0; i < decimals; i++)
        unit *= 10;
    if (decimals == 0)
        fprintf(out, "%" PRIu64, value);
    else
        fprintf(out, "%" PRIu64 ".%0*" PRIu64, value / unit, (int)decimals, value % unit);
}

/* Prints printable ASCII, with a backslash before the characters in `special`. */
static void print_text(const char *text, const char *special, FILE *out)
{
    for (; *text; text++) {
        if (strchr(special, *text))
            putc('\\', out);
        putc(*text >= ' ' && *text <= '~' ? *text : '?', out);
    }
}

/* ------------------------------------------------------------------ Prometheus */

/* A column of a page. */
struct family {
    const struct stats_image *image;
    unsigned table, column;
    size_t page;
    char name[2 * STATS_NAME];
    struct stats_column_entry entry;
};

static int by_family(const void *a, const void *b)
{
    const struct family *x = a, *y = b;
    int c = strcmp(x->name, y->name);

    return c != 0 ? c : (x->page > y->page) - (x->page < y->page);
}

static void label(const char *key, const char *text, bool *first, FILE *out)
{
    if (key[0] == '\0')
        return;
    fprintf(out, "%c%s=\"", *first ? '{' : ',', key);
    print_text(text, "\\\"", out);
    putc('"', out);
    *first = false;
}

static void samples(const struct family *f, const char *suffix)
{
    const struct stats_table_entry *t = &f->image->tables[f->table];
    const struct stats_header *h = &f->image->head;

    for (unsigned row = 0; row < t->nrows; row++) {
        char texts[STATS_LABELS][STATS_TEXT];
        uint64_t values[STATS_COLUMNS_MAX];
        bool torn, first = true;
        if (!stats_get_row(f->image, f->table, row, texts, values, &torn))
            continue;
        printf("downpour_%s%s", f->name, suffix);
        label("program", h->program, &first, stdout);
        for (unsigned i = 0; i < STATS_LABELS; i++)
            label(h->labels[i].key, h->labels[i].text, &first, stdout);
        for (unsigned i = 0; i < STATS_LABELS; i++)
            label(t->keys[i], texts[i], &first, stdout);
        fputs("} ", stdout);
        print_value(values[f->column], f->entry.decimals, stdout);
        putchar('\n');
    }
}

static size_t count_columns(const struct pages *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        for (unsigned t = 0; t < p->images[i].head.ntables; t++)
            n += p->images[i].tables[t].ncolumns;
    return n;
}

/* All samples of a metric are together, under its help. */
static void prometheus(const struct pages *p)
{
    size_t room = count_columns(p), n = 0;
    struct family *all = xcalloc(room + 1, sizeof *all);

    for (size_t i = 0; i < p->n; i++) {
        const struct stats_image *image = &p->images[i];
        for (unsigned t = 0; t < image->head.ntables; t++)
            for (unsigned c = 0; c < image->tables[t].ncolumns; c++) {
                struct family *f = &all[n++];
                *f = (struct family){.image = image, .table = t, .column = c, .page = i};
                stats_get_column(image, t, c, &f->entry);
                snprintf(f->name, sizeof f->name, "%s_%s", image->tables[t].name, f->entry.name);
            }
    }
    qsort(all, n, sizeof all[0], by_family);
    for (size_t i = 0, head = 0; i < n; i++) {
        const char *suffix = all[head].entry.kind == STATS_COUNTER ? "_total" : "";
        if (strcmp(all[i].name, all[head].name) != 0 || i == 0) {
            head = i;
            suffix = all[i].entry.kind == STATS_COUNTER ? "_total" : "";
            printf("# HELP downpour_%s%s ", all[i].name, suffix);
            print_text(all[i].entry.help, "\\", stdout);
            printf("\n# TYPE downpour_%s%s %s\n", all[i].name, suffix,
                   all[i].entry.kind == STATS_COUNTER ? "counter" : "gauge");
        }
        samples(&all[i], suffix);
    }
    free(all);
}

/* ------------------------------------------------------------------ for people */

/* Prints a line for each value, with its meaning. */
static void print_lines(const struct stats_image *image, unsigned table)
{
    const struct stats_table_entry *t = &image->tables[table];
    char texts[STATS_LABELS][STATS_TEXT];
    uint64_t values[STATS_COLUMNS_MAX];
    bool torn;

    if (!stats_get_row(image, table, 0, texts, values, &torn))
        return;
    printf(" %s\n", t->name);
    for (unsigned i = 0; i < t->ncolumns; i++) {
        struct stats_column_entry c;
        char text[40];
        stats_get_column(image, table, i, &c);
        FILE *f = fmemopen(text, sizeof text, "w");
        if (!f)
            return;
        print_value(values[i], c.decimals, f);
        fclose(f);
        printf("  %-31s %20s  ", c.name, text);
        print_text(c.help, "", stdout);
        putchar('\n');
    }
}

/* Prints a line for each row, under the columns' names. */
static void print_rows(const struct stats_image *image, unsigned table)
{
    const struct stats_table_entry *t = &image->tables[table];
    struct stats_column_entry c;

    printf(" %s\n ", t->name);
    for (unsigned i = 0; i < STATS_LABELS && t->keys[i][0]; i++)
        printf(" %-21s", t->keys[i]);
    for (unsigned i = 0; i < t->ncolumns; i++) {
        stats_get_column(image, table, i, &c);
        printf(" %s", c.name);
    }
    putchar('\n');
    for (unsigned row = 0; row < t->nrows; row++) {
        char texts[STATS_LABELS][STATS_TEXT];
        uint64_t values[STATS_COLUMNS_MAX];
        bool torn;
        if (!stats_get_row(image, table, row, texts, values, &torn))
            continue;
        putchar(' ');
        for (unsigned i = 0; i < STATS_LABELS && t->keys[i][0]; i++) {
            putchar(' ');
            print_text(texts[i], "", stdout);
            printf("%*s", (int)(strlen(texts[i]) < 21 ? 21 - strlen(texts[i]) : 0), "");
        }
        for (unsigned i = 0; i < t->ncolumns; i++) {
            stats_get_column(image, table, i, &c);
            /* As wide as its name. */
            unsigned digits = c.decimals > 3 ? 3 : c.decimals;
            double value = (double)values[i];
            for (unsigned k = 0; k < c.decimals; k++)
                value /= 10;
            printf(" %*.*f", (int)strlen(c.name), (int)digits, value);
        }
        putchar('\n');
    }
}

static void for_people(const struct pages *p)
{
    uint64_t now_us = (uint64_t)time(NULL) * 1000000;

    for (size_t i = 0; i < p->n; i++) {
        const struct stats_image *image = &p->images[i];
        const struct stats_header *h = &image->head;
        printf("%s", h->program);
        for (unsigned k = 0; k < STATS_LABELS && h->labels[k].key[0]; k++) {
            printf(" %s=", h->labels[k].key);
            print_text(h->labels[k].text, "", stdout);
        }
        printf(", process %" PRIu64 " for %" PRIu64 " s\n", h->pid,
               now_us > h->start_us ? (now_us - h->start_us) / 1000000 : 0);
        for (unsigned t = 0; t < h->ntables; t++)
            (image->tables[t].keys[0][0] ? print_rows : print_lines)(image, t);
    }
}

/* ------------------------------------------------------------------ the queue */

/* The queue's counters as a page of this program, so that they are printed alike. Field, kind,
 * decimals, help, value from struct pq_stats s. */
#define QUEUE_COUNTERS(X)                                                                        \
    X(products, GAUGE, 0, "Products in the queue.", s.used_slots)                                \
    X(product_slots, GAUGE, 0, "Most products that it can hold.", s.slots)                       \
    X(used_bytes, GAUGE, 0, "Bytes in use, reservations included.", s.used_bytes)                \
    X(capacity_bytes, GAUGE, 0, "Most bytes that it can hold.", s.data_bytes)                    \
    X(inserted_products, COUNTER, 0, "Products inserted.", s.inserted)                           \
    X(evicted_products, COUNTER, 0, "Products that made room.", s.evicted)                       \
    X(duplicates, COUNTER, 0, "Products refused because they were already there.", s.duplicates) \
    X(recoveries, COUNTER, 0, "Times that a process died holding the lock.", s.recoveries)       \
    X(oldest_age_seconds, GAUGE, 3, "Time since the oldest was inserted; 0: none.",              \
      milliseconds(s.age_oldest_s))                                                              \
    X(youngest_age_seconds, GAUGE, 3, "Time since the youngest was inserted; 0: none.",          \
      milliseconds(s.age_youngest_s))

static uint64_t milliseconds(double s)
{
    return s > 0 ? (uint64_t)(s * 1000) : 0;
}

static void print_queue(const char *path, bool for_prometheus)
{
#define COLUMN(field, kind, decimals, text, value) {#field, STATS_##kind, decimals, text},
#define VALUE(field, kind, decimals, text, value) value,
    static const struct stats_column columns[] = {QUEUE_COUNTERS(COLUMN)};
    enum { COLUMNS = sizeof columns / sizeof columns[0] };
    struct pq *q = tool_open(path, false);
    struct pq_stats s;

    pq_get_stats(q, &s);
    pq_close(q);
    const uint64_t values[COLUMNS] = {QUEUE_COUNTERS(VALUE)};
    if (!for_prometheus)
        printf("queue %s\n", path);
    for (unsigned i = 0; i < COLUMNS; i++) {
        const struct stats_column *c = &columns[i];
        const char *suffix = c->kind == STATS_COUNTER ? "_total" : "";
        if (for_prometheus)
            printf(
                "# HELP downpour_queue_%s%s %s\n# TYPE downpour_queue_%s%s %s\ndownpour_queue_%s%s ",
                c->name, suffix, c->help, c->name, suffix,
                c->kind == STATS_COUNTER ? "counter" : "gauge", c->name, suffix);
        else
            printf("  %-31s ", c->name);
        print_value(values[i], c->decimals, stdout);
        printf(for_prometheus ? "\n" : "  %s\n", c->help);
    }
}

/* ------------------------------------------------------------------ */

int main(int argc, char **argv)
{
    static struct pages pages;
    const char *queue = NULL, *dir = NULL;
    bool for_prometheus = false;

    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:d:", options, NULL)) != -1;) {
        switch (c) {
        case 'q': queue = optarg; break;
        case 'd': dir = optarg; break;
        case PROMETHEUS: for_prometheus = true; break;
        default: tool_option(c, help);
        }
    }
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    if (!queue == !dir)
        tool_usage("found %s -q and -d; valid: one of them", queue ? "both" : "neither");
    char *beside = NULL;
    if (dir) {
        take_all(&pages, dir, true);
    } else {
        if (asprintf(&beside, "%s.stats", queue) < 0 || !beside)
            return TOOL_SYSTEM;
        print_queue(queue, for_prometheus);
        take_all(&pages, beside, false);
    }
    (for_prometheus ? prometheus : for_people)(&pages);
    for (size_t i = 0; i < pages.n; i++)
        stats_free(&pages.images[i]);
    free(beside);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        log_error("cannot write: %s", strerror(errno));
        return TOOL_SYSTEM;
    }
    return pages.refused ? TOOL_SYSTEM : TOOL_OK;
}
