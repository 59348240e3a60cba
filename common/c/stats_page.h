/* SPDX-License-Identifier: Apache-2.0
 *
 * A process's counters in a file that others read while it runs. The file is mapped: after
 * stats_open() an update is a few stores to memory, no system call. The file describes itself
 * (tables, columns, units, help), so that a reader needs no knowledge of the program: stats_read.h.
 * All numbers are in the byte order of the machine that wrote them.
 *
 * A row is whole if its first word equals its last: the writer changes the last one before the
 * values and the first one after them, and readers copy in ascending order.
 */
#ifndef COMMON_STATS_PAGE_H
#define COMMON_STATS_PAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { STATS_VERSION = 1, STATS_ORDER = 0x01020304 };
#define STATS_MAGIC "DPSTATS\n"
enum {
    STATS_TABLES_MAX = 8,
    STATS_COLUMNS_MAX = 64,
    STATS_ROWS_MAX = 4096,
    STATS_DECIMALS_MAX = 9
};
enum { STATS_FILE_MAX = 4 << 20 };
enum { STATS_NAME = 40, STATS_HELP = 144, STATS_KEY = 24, STATS_TEXT = 104, STATS_LABELS = 2 };

enum stats_kind { STATS_COUNTER = 1, STATS_GAUGE = 2 }; /* a counter only grows */

/* ------------------------------------------------------------------ the file */

struct stats_label {
    char key[STATS_KEY], text[STATS_TEXT]; /* texts are NUL-terminated */
};
struct stats_header {
    char magic[8];
    uint32_t version, order; /* STATS_VERSION, STATS_ORDER */
    uint32_t bytes;          /* of the file */
    uint32_t ntables;        /* as many struct stats_table_entry follow */
    uint64_t pid, ticks;     /* the process, and its start time in ticks since boot (proc(5)) */
    uint64_t start_us;       /* its start time in microseconds since 1970 */
    char boot_id[STATS_NAME];
    char program[STATS_NAME];
    struct stats_label labels[STATS_LABELS]; /* common to all rows; an empty key: none */
};
struct stats_table_entry {
    char name[STATS_NAME];
    char keys[STATS_LABELS]
             [STATS_KEY]; /* keys of the rows' labels; an empty first one: no labels */
    uint32_t ncolumns, nrows;
    uint32_t columns_at, rows_at, row_bytes; /* offsets in the file; rows are 8-byte aligned */
    uint32_t unused;
};
struct stats_column_entry {
    char name[STATS_NAME]; /* includes the unit, as in pinned_bytes */
    uint32_t kind, decimals;
    char help[STATS_HELP];
};
/* A row: this, a uint64_t for each column, and the uint64_t `begun`. A row of a table with labels
 * is in use if its first text is not empty; a row of a table without labels is in use once it has
 * been written. */
struct stats_row {
    uint64_t done;
    char texts[STATS_LABELS][STATS_TEXT];
    uint64_t values[];
};

/* ------------------------------------------------------------------ the writer */

struct stats_column {
    const char *name;
    enum stats_kind kind;
    unsigned decimals; /* the value is in units of 10^-decimals */
    const char *help;
};
/* A column of a table whose values are a struct of uint64_t, for X-macro lists of X(field, kind,
 * decimals, help). */
#define STATS_FIELD(field, kind, decimals, help) uint64_t field;
#define STATS_COLUMN(field, kind, decimals, help) {#field, STATS_##kind, decimals, help},

struct stats_table {
    const char *name;
    const char *keys[STATS_LABELS]; /* NULL: none */
    const struct stats_column *columns;
    unsigned ncolumns, nrows;
};
struct stats_spec {
    const char *program;
    const char *keys[STATS_LABELS], *texts[STATS_LABELS]; /* NULL: none */
    const struct stats_table *tables;
    unsigned ntables;
};

struct stats_page;

/* Creates DIR/PROGRAM.PID, and DIR if it does not exist. Returns NULL with errno; EOVERFLOW if the
 * description exceeds a bound. */
struct stats_page *stats_open(const char *dir, const struct stats_spec *spec);
/* Removes the file. NULL is ignored. */
void stats_close(struct stats_page *p);
/* Sets the labels of a row (long texts are cut) and its values, one for each column. NULL texts:
 * the row has no labels, or they stay as they are. */
void stats_write(struct stats_page *p, unsigned table, unsigned row, const char *const *texts,
                 const uint64_t *values);
/* Marks a row of a table with labels as no longer in use. */
void stats_forget(struct stats_page *p, unsigned table, unsigned row);

/* Formats the name of a process's file. Returns out. */
char *stats_file_name(char *out, size_t out_bytes, const char *program, pid_t pid);
/* Returns a process's start time in ticks since boot; 0 if the process does not exist or has
 * ended. */
uint64_t stats_process_ticks(pid_t pid);
/* Formats the ID of the machine's current boot; empty if unknown. Returns out. */
char *stats_boot_id(char out[STATS_NAME]);

#endif
