/* SPDX-License-Identifier: Apache-2.0
 *
 * Which products a program handles: options -f FEED and -p PATTERN.
 */
#ifndef LDM_SELECTION_H
#define LDM_SELECTION_H

#include <stdbool.h>

#include "ere.h"
#include "queue/pq.h"

struct selection {
    uint32_t feed;
    struct ere *pattern; /* NULL: any identifier */
};
/* Ends the program with a message if text is not a regular expression. */
void selection_pattern(struct selection *s, const char *text);
/* Returns whether the product is selected. */
bool selection_has(const struct selection *s, const struct pq_info *info);
/* Frees the pattern. */
void selection_free(struct selection *s);

#endif
