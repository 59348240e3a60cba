/* SPDX-License-Identifier: Apache-2.0
 *
 * The <product> of log lines: `%10u YYYYMMDDhhmmss.uuuuuu FEED %03u  ident`
 * (size in bytes, creation time in UTC, feed, sequence number, identifier).
 */
#ifndef LDM_PRODUCT_LINE_H
#define LDM_PRODUCT_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "queue/pq.h"

#define PRODUCT_LINE_MAX 704

/* Returns out (always terminated), so it can be an argument of log_info(). */
char *product_line_format(const struct pq_info *info, char *out, size_t out_bytes);
/* Formats a signature as 32 lower-case hexadecimal digits; returns out. */
char *signature_format(const struct pq_signature *sig, char out[33]);
/* Parses 32 hexadecimal digits of either case; returns false for anything else. */
bool signature_parse(const char *hex32, struct pq_signature *sig);

#endif
