/* SPDX-License-Identifier: Apache-2.0 */
#include "stats_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_at.h"

enum { TORN_TRIES = 20 };

static bool refuse(char why[STATS_WHY], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(char why[STATS_WHY], const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, STATS_WHY, fmt, ap);
    va_end(ap);
    return false;
}

static bool ends(const char *text, size_t bytes)
{
    return memchr(text, '\0', bytes) != NULL;
}

/* Matches [a-z][a-z0-9_]*, the form of metric and label names in monitoring systems. */
static bool is_name(const char *text, size_t bytes)
{
    if (!ends(text, bytes) || text[0] < 'a' || text[0] > 'z')
        return false;
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static bool is_label_key(const char *text)
{
    return text[0] == '\0' || is_name(text, STATS_KEY);
}

static bool check_header(const struct stats_header *h, size_t n, char why[STATS_WHY])
{
    if (memcmp(h->magic, STATS_MAGIC, sizeof h->magic) != 0)
        return refuse(why, "not a counters page: it does not begin with \"DPSTATS\"");
    if (h->order != STATS_ORDER)
        return refuse(why, "written by a machine of another byte order");
    if (h->version != STATS_VERSION)
        return refuse(why, "found version %u; valid: %d", h->version, STATS_VERSION);
    if (h->bytes != n)
        return refuse(why, "found %zu bytes; valid: the %u of its header", n, h->bytes);
    if (h->ntables == 0 || h->ntables > STATS_TABLES_MAX)
        return refuse(why, "found %u tables; valid: 1 to %d", h->ntables, STATS_TABLES_MAX);
    if (!ends(h->boot_id, sizeof h->boot_id) || !is_name(h->program, sizeof h->program))
        return refuse(why, "found an invalid program name; valid: a-z, 0-9 and _");
    for (unsigned i = 0; i < STATS_LABELS; i++)
        if (!is_label_key(h->labels[i].key) || !ends(h->labels[i].text, sizeof h->labels[i].text))
            return refuse(why, "label %u has no valid name or no terminator", i);
    return true;
}

static bool lies_within(size_t n, uint64_t at, uint64_t each, uint64_t count)
{
    return at <= n && each * count <= n - at;
}

static bool check_columns(const struct stats_image *image, unsigned table, char why[STATS_WHY])
{
    const struct stats_table_entry *t = &image->tables[table];

    for (unsigned i = 0; i < t->ncolumns; i++) {
        struct stats_column_entry c;
        stats_get_column(image, table, i, &c);
        if (!is_name(c.name, sizeof c.name) || !ends(c.help, sizeof c.help))
            return refuse(why, "column %u of table %s has no valid name or help", i, t->name);
        if ((c.kind != STATS_COUNTER && c.kind != STATS_GAUGE) || c.decimals > STATS_DECIMALS_MAX)
            return refuse(why,
                          "column %s of table %s: found kind %u with %u decimals; valid: 1 or 2, "
                          "at most %d",
                          c.name, t->name, c.kind, c.decimals, STATS_DECIMALS_MAX);
    }
    return true;
}

static bool check_table(const struct stats_image *image, unsigned table, char why[STATS_WHY])
{
    const struct stats_table_entry *t = &image->tables[table];

    if (!is_name(t->name, sizeof t->name))
        return refuse(why, "table %u has no valid name", table);
    for (unsigned i = 0; i < STATS_LABELS; i++)
        if (!is_label_key(t->keys[i]))
            return refuse(why, "table %s: label %u has no valid name", t->name, i);
    if (t->ncolumns == 0 || t->ncolumns > STATS_COLUMNS_MAX || t->nrows == 0 ||
        t->nrows > STATS_ROWS_MAX)
        return refuse(why, "table %s: found %u columns and %u rows; valid: 1 to %d and 1 to %d",
                      t->name, t->ncolumns, t->nrows, STATS_COLUMNS_MAX, STATS_ROWS_MAX);
    if (t->row_bytes != sizeof(struct stats_row) + (t->ncolumns + 1) * sizeof(uint64_t))
        return refuse(why, "table %s: found rows of %u bytes with %u columns", t->name,
                      t->row_bytes, t->ncolumns);
    if (!lies_within(image->n, t->columns_at, sizeof(struct stats_column_entry), t->ncolumns) ||
        !lies_within(image->n, t->rows_at, t->row_bytes, t->nrows))
        return refuse(why, "table %s lies beyond the end of the file", t->name);
    return check_columns(image, table, why);
}

bool stats_parse(struct stats_image *image, uint8_t *bytes, size_t n, char why[STATS_WHY])
{
    *image = (struct stats_image){.bytes = bytes, .n = n};
    if (n < sizeof image->head || n > STATS_FILE_MAX)
        return refuse(why, "found %zu bytes; valid: %zu to %d", n, sizeof image->head,
                      STATS_FILE_MAX);
    memcpy(&image->head, bytes, sizeof image->head);
    if (!check_header(&image->head, n, why))
        return false;
    size_t len = image->head.ntables * sizeof image->tables[0];
    if (len > n - sizeof image->head)
        return refuse(why, "the tables lie beyond the end of the file");
    memcpy(image->tables, bytes + sizeof image->head, len);
    for (unsigned i = 0; i < image->head.ntables; i++)
        if (!check_table(image, i, why))
            return false;
    return true;
}

/* A row that is equal in two consecutive copies is whole: the writer did not change it in between.
 * (A single copy proves nothing: the kernel may copy its bytes in any order.) Marks other rows as
 * torn; returns true if there is one. */
static bool mark_torn_rows(const struct stats_image *image, const uint8_t *before)
{
    bool any = false;

    for (unsigned t = 0; t < image->head.ntables; t++) {
        const struct stats_table_entry *entry = &image->tables[t];
        for (unsigned r = 0; r < entry->nrows; r++) {
            size_t at = entry->rows_at + (size_t)r * entry->row_bytes;
            uint64_t done, begun;
            memcpy(&done, image->bytes + at, sizeof done);
            if (memcmp(image->bytes + at, before + at, entry->row_bytes) != 0) {
                begun = done + 1;
                memcpy(image->bytes + at + entry->row_bytes - sizeof begun, &begun, sizeof begun);
            }
            memcpy(&begun, image->bytes + at + entry->row_bytes - sizeof begun, sizeof begun);
            any = any || done != begun;
        }
    }
    return any;
}

/* Opens a file without following links or blocking on a FIFO. */
static int open_regular(int dir, const char *name, struct stat *st, char why[STATS_WHY])
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0) {
        refuse(why, "%s", errno == ELOOP ? "a symbolic link; valid: a file" : strerror(errno));
        return -1;
    }
    if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode))
        refuse(why, "not a regular file");
    else if (st->st_size > STATS_FILE_MAX)
        refuse(why, "found %lld bytes; valid: at most %d", (long long)st->st_size, STATS_FILE_MAX);
    else
        return fd;
    close(fd);
    return -1;
}

bool stats_load(struct stats_image *image, int dir, const char *name, char why[STATS_WHY])
{
    struct stat st;
    int fd = open_regular(dir, name, &st, why);

    if (fd < 0)
        return false;
    size_t n = (size_t)st.st_size;
    uint8_t *bytes = malloc(n ? n : 1), *last = malloc(n ? n : 1), *before = malloc(n ? n : 1);
    bool ok = bytes && last && before;
    if (!ok)
        refuse(why, "out of memory");
    /* Read instead of mapped: truncating a mapped file would kill the reader. */
    ok = ok && (file_read_at(fd, 0, last, n) == 0 || refuse(why, "%s", strerror(errno)));
    for (int i = 0; ok && i < TORN_TRIES; i++) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        ok = file_read_at(fd, 0, bytes, n) == 0 || refuse(why, "%s", strerror(errno));
        memcpy(before, last, n);
        memcpy(last, bytes, n);
        ok = ok && stats_parse(image, bytes, n, why);
        if (!ok || !mark_torn_rows(image, before))
            break;
        ok = stats_parse(image, bytes, n, why); /* rows of a forged file may overlap its texts */
    }
    close(fd);
    free(last);
    free(before);
    if (!ok)
        free(bytes);
    return ok;
}

void stats_free(struct stats_image *image)
{
    free(image->bytes);
    image->bytes = NULL;
}

bool stats_alive(const struct stats_image *image)
{
    const struct stats_header *h = &image->head;
    char boot[STATS_NAME];

    if (h->pid == 0 || h->pid > INT32_MAX || strcmp(stats_boot_id(boot), h->boot_id) != 0)
        return false;
    return stats_process_ticks((pid_t)h->pid) == h->ticks;
}

void stats_get_column(const struct stats_image *image, unsigned table, unsigned column,
                      struct stats_column_entry *out)
{
    memcpy(out, image->bytes + image->tables[table].columns_at + column * sizeof *out, sizeof *out);
}

bool stats_get_row(const struct stats_image *image, unsigned table, unsigned row,
                   char texts[STATS_LABELS][STATS_TEXT], uint64_t *values, bool *torn)
{
    const struct stats_table_entry *t = &image->tables[table];
    const uint8_t *at = image->bytes + t->rows_at + (size_t)row * t->row_bytes;
    size_t bytes = t->ncolumns * sizeof *values;
    uint64_t done, begun;

    memcpy(&done, at, sizeof done);
    memcpy(texts, at + offsetof(struct stats_row, texts), sizeof(char[STATS_LABELS][STATS_TEXT]));
    memcpy(values, at + offsetof(struct stats_row, values), bytes);
    memcpy(&begun, at + offsetof(struct stats_row, values) + bytes, sizeof begun);
    *torn = done != begun;
    for (unsigned i = 0; i < STATS_LABELS; i++)
        texts[i][STATS_TEXT - 1] = '\0';
    return !*torn && done != 0 && (t->keys[0][0] == '\0' || texts[0][0] != '\0');
}
