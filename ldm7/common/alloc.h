/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the bookkeeping of programs: where there is none, the program logs one line and ends
 * with ALLOC_EXIT. Libraries that a caller can continue without (the product queue, FMTP) return an
 * error instead (docs/develop/c-style.md).
 */
#ifndef LDM_ALLOC_H
#define LDM_ALLOC_H

#include <stddef.h>

enum { ALLOC_EXIT = 1 }; /* "a system error" of the manual pages */

/* Logs that it cannot allocate `bytes` bytes, and ends the process, also a forked one, at once. */
_Noreturn void alloc_fails(size_t bytes);

/* n elements of `bytes` bytes each, all zero. The caller frees. */
void *xcalloc(size_t n, size_t bytes) __attribute__((malloc, returns_nonnull));
/* `old` (may be NULL) with room for n elements of `bytes` bytes each; what is new is not set. NULL
 * only where n or bytes is 0. */
void *xreallocarray(void *old, size_t n, size_t bytes);
/* A list of *n elements (may be NULL) with one more, all zero, at its end; counts it in *n. */
void *xgrow(void *list, size_t *n, size_t bytes) __attribute__((returns_nonnull));
/* A copy of the text, which the caller frees. */
char *xstrdup(const char *text) __attribute__((malloc, returns_nonnull));

#endif
