/* SPDX-License-Identifier: Apache-2.0 */
#include "stats_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct stats_header) % 8 == 0 && sizeof(struct stats_table_entry) % 8 == 0 &&
                   sizeof(struct stats_column_entry) % 8 == 0 && sizeof(struct stats_row) % 8 == 0,
               "what follows is aligned");

struct stats_page {
    uint8_t *at; /* the mapped file */
    size_t bytes;
    int dir;
    char name[STATS_NAME + 16];
};

char *stats_file_name(char *out, size_t out_bytes, const char *program, pid_t pid)
{
    snprintf(out, out_bytes, "%s.%d", program, (int)pid);
    return out;
}

uint64_t stats_process_ticks(pid_t pid)
{
    char path[40], text[1024];
    uint64_t ticks = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may contain any character */
    bool ended = !at || at[1] == '\0' || strchr("ZX", at[2]);
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at && !ended)
        ticks = strtoull(at + 1, NULL, 10);
    return ticks;
}

char *stats_boot_id(char out[STATS_NAME])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (!f || !fgets(out, STATS_NAME, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (f)
        fclose(f);
    return out;
}

/* Zeroes the rest of `out`, so that no byte of an earlier, longer text remains. */
static void put_text(char *out, size_t bytes, const char *text)
{
    memset(out, 0, bytes);
    if (text)
        memcpy(out, text, strnlen(text, bytes - 1));
}

static size_t row_bytes(const struct stats_table *t)
{
    return sizeof(struct stats_row) + (t->ncolumns + 1) * sizeof(uint64_t);
}

/* Returns the size of the file in bytes; 0 if it exceeds a bound. */
static size_t file_bytes(const struct stats_spec *spec)
{
    size_t n = sizeof(struct stats_header) + spec->ntables * sizeof(struct stats_table_entry);

    if (!spec->ntables || spec->ntables > STATS_TABLES_MAX)
        return 0;
    for (unsigned i = 0; i < spec->ntables; i++) {
        const struct stats_table *t = &spec->tables[i];
        if (!t->ncolumns || t->ncolumns > STATS_COLUMNS_MAX || !t->nrows ||
            t->nrows > STATS_ROWS_MAX)
            return 0;
        n += t->ncolumns * sizeof(struct stats_column_entry) + t->nrows * row_bytes(t);
    }
    return n <= STATS_FILE_MAX ? n : 0;
}

static void put_columns(struct stats_column_entry *out, const struct stats_table *t)
{
    for (unsigned i = 0; i < t->ncolumns; i++) {
        const struct stats_column *c = &t->columns[i];
        put_text(out[i].name, sizeof out[i].name, c->name);
        put_text(out[i].help, sizeof out[i].help, c->help);
        out[i].kind = c->kind;
        out[i].decimals = c->decimals;
    }
}

static void describe(uint8_t *file, size_t bytes, const struct stats_spec *spec)
{
    struct stats_header *h = (struct stats_header *)(void *)file;
    struct stats_table_entry *e = (struct stats_table_entry *)(void *)(h + 1);
    size_t at = sizeof *h + spec->ntables * sizeof *e;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    memcpy(h->magic, STATS_MAGIC, sizeof h->magic);
    h->version = STATS_VERSION;
    h->order = STATS_ORDER;
    h->bytes = (uint32_t)bytes;
    h->ntables = spec->ntables;
    h->pid = (uint64_t)getpid();
    h->ticks = stats_process_ticks(getpid());
    h->start_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    stats_boot_id(h->boot_id);
    put_text(h->program, sizeof h->program, spec->program);
    for (unsigned i = 0; i < STATS_LABELS; i++) {
        put_text(h->labels[i].key, sizeof h->labels[i].key, spec->keys[i]);
        put_text(h->labels[i].text, sizeof h->labels[i].text, spec->texts[i]);
    }
    for (unsigned i = 0; i < spec->ntables; i++, e++) {
        const struct stats_table *t = &spec->tables[i];
        put_text(e->name, sizeof e->name, t->name);
        for (unsigned k = 0; k < STATS_LABELS; k++)
            put_text(e->keys[k], sizeof e->keys[k], t->keys[k]);
        e->ncolumns = t->ncolumns;
        e->nrows = t->nrows;
        e->columns_at = (uint32_t)at;
        put_columns((struct stats_column_entry *)(void *)(file + at), t);
        at += t->ncolumns * sizeof(struct stats_column_entry);
        e->rows_at = (uint32_t)at;
        e->row_bytes = (uint32_t)row_bytes(t);
        at += t->nrows * row_bytes(t);
    }
}

/* Creates a file of that size under a name that readers skip, and maps it. All its blocks are
 * reserved: a full disk is then an error here instead of a SIGBUS later. */
static uint8_t *map_new(int dir, const char *name, size_t bytes)
{
    unlinkat(dir, name, 0); /* left by a dead process with the same PID */
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (fd < 0)
        return NULL;
    int e = posix_fallocate(fd, 0, (off_t)bytes);
    void *at = MAP_FAILED;
    if (e == 0) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        e = errno;
    }
    close(fd);
    if (at != MAP_FAILED)
        return at;
    unlinkat(dir, name, 0);
    errno = e;
    return NULL;
}

static int open_dir(const char *dir)
{
    if (mkdir(dir, 0750) < 0 && errno != EEXIST)
        return -1;
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

struct stats_page *stats_open(const char *dir, const struct stats_spec *spec)
{
    size_t bytes = file_bytes(spec);
    struct stats_page *p = calloc(1, sizeof *p);
    char made[sizeof p->name + 1];

    if (!p)
        return NULL;
    *p = (struct stats_page){.bytes = bytes, .dir = -1};
    if (!bytes || strlen(spec->program) >= STATS_NAME) {
        free(p);
        errno = EOVERFLOW;
        return NULL;
    }
    p->dir = open_dir(dir);
    stats_file_name(p->name, sizeof p->name, spec->program, getpid());
    snprintf(made, sizeof made, ".%s", p->name);
    p->at = p->dir < 0 ? NULL : map_new(p->dir, made, bytes);
    if (p->at) {
        describe(p->at, bytes, spec);
        if (renameat(p->dir, made, p->dir, p->name) == 0)
            return p;
    }
    int e = errno;
    if (p->at) {
        munmap(p->at, bytes);
        unlinkat(p->dir, made, 0);
    }
    if (p->dir >= 0)
        close(p->dir);
    free(p);
    errno = e;
    return NULL;
}

void stats_close(struct stats_page *p)
{
    if (!p)
        return;
    unlinkat(p->dir, p->name, 0);
    munmap(p->at, p->bytes);
    close(p->dir);
    free(p);
}

static const struct stats_table_entry *table_of(const struct stats_page *p, unsigned table)
{
    return (const struct stats_table_entry *)(const void *)(p->at + sizeof(struct stats_header)) +
           table;
}

static struct stats_row *row_of(const struct stats_page *p, const struct stats_table_entry *t,
                                unsigned row)
{
    return (struct stats_row *)(void *)(p->at + t->rows_at + (size_t)row * t->row_bytes);
}

static void begin(struct stats_row *r, unsigned ncolumns)
{
    __atomic_store_n(&r->values[ncolumns], r->done + 1, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release);
}

static void end(struct stats_row *r)
{
    __atomic_store_n(&r->done, r->done + 1, __ATOMIC_RELEASE);
}

void stats_write(struct stats_page *p, unsigned table, unsigned row, const char *const *texts,
                 const uint64_t *values)
{
    const struct stats_table_entry *t = table_of(p, table);
    struct stats_row *r = row_of(p, t, row);

    begin(r, t->ncolumns);
    for (unsigned i = 0; texts && i < STATS_LABELS; i++)
        put_text(r->texts[i], sizeof r->texts[i], texts[i]);
    for (unsigned i = 0; i < t->ncolumns; i++)
        __atomic_store_n(&r->values[i], values[i], __ATOMIC_RELAXED);
    end(r);
}

void stats_forget(struct stats_page *p, unsigned table, unsigned row)
{
    const struct stats_table_entry *t = table_of(p, table);
    struct stats_row *r = row_of(p, t, row);

    if (r->texts[0][0] == '\0')
        return;
    begin(r, t->ncolumns);
    memset(r->texts, 0, sizeof r->texts);
    end(r);
}
