/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a counters page: it is refused in one line, or everything that it describes can be
 * read.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "stats_read.h"

static void look(const struct stats_image *image, unsigned table)
{
    const struct stats_table_entry *t = &image->tables[table];
    uint64_t values[STATS_COLUMNS_MAX];
    char texts[STATS_LABELS][STATS_TEXT];
    struct stats_column_entry c;
    bool torn;
    volatile size_t sum = strlen(t->name) + strlen(t->keys[0]) + strlen(t->keys[1]);

    for (unsigned i = 0; i < t->ncolumns; i++) {
        stats_get_column(image, table, i, &c);
        sum += strlen(c.name) + strlen(c.help);
    }
    for (unsigned i = 0; i < t->nrows; i++)
        if (stats_get_row(image, table, i, texts, values, &torn))
            sum += strlen(texts[0]) + strlen(texts[1]) + values[t->ncolumns - 1];
    (void)sum; /* every value was read: that is the test */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    struct stats_image image;
    char why[STATS_WHY] = "";

    if (!copy)
        return 0;
    memcpy(copy, data, bytes);
    if (stats_parse(&image, copy, bytes, why)) {
        (void)stats_alive(&image);
        for (unsigned t = 0; t < image.head.ntables; t++)
            look(&image, t);
    } else if (why[0] == '\0' || strchr(why, '\n')) {
        abort();
    }
    free(copy);
    return 0;
}
