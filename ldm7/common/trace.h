/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of product metadata, in the papers' format: one product per line,
 *   size YYYYMMDDhhmmss.mmm
 * size in bytes (1 to 4294967295), time in UTC, also with six decimals. Times may repeat, never go
 * back. Blank lines and lines that begin with # are skipped; a carriage return at the end of a line
 * is ignored. The real hour of NGRID has no empty products and no time that goes back, so both are
 * errors: they mean a damaged file.
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
    uint32_t line; /* of the file, from 1 */
};

struct trace {
    struct trace_entry *entries;
    size_t count;
    uint64_t total_bytes;
};

/* Parses text (need not end in NUL). Every error is one line on `errors`, the first 20 of them and
 * then how many there are: NAME:LINE: found "..."; valid: ...   Returns how many errors (out is
 * then empty); a trace without products is one. -1: out of memory. */
long trace_parse(const char *text, size_t bytes, const char *name, struct trace *out, FILE *errors);
/* Keeps the products of the first `duration_ms` of the trace: time < first time + duration_ms. */
void trace_cut(struct trace *t, int64_t duration_ms);
/* Frees the entries; also after an error. */
void trace_free(struct trace *t);

#endif
