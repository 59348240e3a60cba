/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the files of stats_page.h. They may be of another version, damaged or malicious: nothing in
 * a file is trusted before it is checked.
 */
#ifndef COMMON_STATS_READ_H
#define COMMON_STATS_READ_H

#include <stdbool.h>

#include "stats_page.h"

enum { STATS_WHY = 200 };

/* A copy of a file; all its texts are terminated, all its tables lie within it. */
struct stats_image {
    uint8_t *bytes;
    size_t n;
    struct stats_header head;
    struct stats_table_entry tables[STATS_TABLES_MAX];
};

/* Checks n bytes of a file; image keeps the pointer, not a copy. On false, `why` says what was
 * found and what is valid. */
bool stats_parse(struct stats_image *image, uint8_t *bytes, size_t n, char why[STATS_WHY]);
/* Reads a file of a directory and checks it. On false, `why` is set and the image must not be
 * freed. */
bool stats_load(struct stats_image *image, int dir, const char *name, char why[STATS_WHY]);
/* Frees what stats_load allocated. */
void stats_free(struct stats_image *image);
/* Returns whether the process that wrote the page still runs on this machine. */
bool stats_alive(const struct stats_image *image);

void stats_get_column(const struct stats_image *image, unsigned table, unsigned column,
                      struct stats_column_entry *out);
/* texts: the row's labels. values: ncolumns of them. Returns false if the row is not in use or is
 * being written (*torn). */
bool stats_get_row(const struct stats_image *image, unsigned table, unsigned row,
                   char texts[STATS_LABELS][STATS_TEXT], uint64_t *values, bool *torn);

#endif
