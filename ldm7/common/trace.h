/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of product metadata in the papers' format: one product per line,
 *   size YYYYMMDDhhmmss.mmm
 * size in bytes (1 to 4294967295), time in UTC; six decimals are accepted too. Times may repeat but
 * never decrease. Blank lines and lines that begin with # are skipped; a carriage return at the end
 * of a line is ignored. The real hour of NGRID has no empty products and no decreasing times, so
 * both are errors: they indicate a damaged file.
 */
#ifndef LDM_TRACE_H
#define LDM_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_ERRORS_SHOWN 20

struct trace_entry {
    int64_t time_us; /* since 1970-01-01 00:00:00 UTC */
    uint32_t size_bytes;
    uint32_t line; /* line of the file, from 1 */
};

struct trace {
    struct trace_entry *entries;
    size_t count;
    uint64_t total_bytes;
};

/* Parses text (need not end in NUL). Each error is one line on `errors`, NAME:LINE: found "...";
 * valid: ... , for the first 20 errors, followed by their total number. Returns the number of
 * errors (out is then empty); a trace without products counts as one. Returns -1 without memory. */
long trace_parse(const char *text, size_t bytes, const char *name, struct trace *out, FILE *errors);
/* Keeps the products of the first `duration_ms` of the trace: time < first time + duration_ms. */
void trace_cut(struct trace *t, int64_t duration_ms);
/* Frees the entries; permitted even after an error. */
void trace_free(struct trace *t);

#endif
