/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the files of stats_page.h, which may be those of other versions, damaged or made by
 * somebody who means harm: nothing of a file is believed before it is checked.
 */
#ifndef COMMON_STATS_READ_H
#define COMMON_STATS_READ_H

#include <stdbool.h>

#include "stats_page.h"

enum { STATS_WHY = 200 };

/* A copy of a file; all texts in it end, all tables are within it. */
struct stats_image {
    uint8_t *bytes;
    size_t n;
    struct stats_header head;
    struct stats_table_entry tables[STATS_TABLES_MAX];
};

/* Checks n bytes of a file; image keeps the pointer, not a copy. false: why says what was found and
 * what is valid. */
bool stats_parse(struct stats_image *image, uint8_t *bytes, size_t n, char why[STATS_WHY]);
/* Reads a file below a directory and checks it. false: why; the image is not to be freed then. */
bool stats_load(struct stats_image *image, int dir, const char *name, char why[STATS_WHY]);
/* Frees what stats_load allocated. */
void stats_free(struct stats_image *image);
/* True if the process that wrote it still runs on this machine. */
bool stats_alive(const struct stats_image *image);

void stats_get_column(const struct stats_image *image, unsigned table, unsigned column,
                      struct stats_column_entry *out);
/* texts: of the row's labels. values: ncolumns of them. false: the row is not in use, or is being
 * written (*torn). */
bool stats_get_row(const struct stats_image *image, unsigned table, unsigned row,
                   char texts[STATS_LABELS][STATS_TEXT], uint64_t *values, bool *torn);

#endif
