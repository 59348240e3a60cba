/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the bookkeeping of programs: if there is none, the program logs one line and ends with
 * ALLOC_EXIT. Libraries whose callers can continue without memory (the product queue, FMTP) return
 * an error instead (docs/develop/c-style.md).
 */
#ifndef LDM_ALLOC_H
#define LDM_ALLOC_H

#include <stddef.h>

enum { ALLOC_EXIT = 1 }; /* "a system error" of the manual pages */

/* Logs that it cannot allocate `bytes` bytes, and ends the process (even a forked one) at once. */
_Noreturn void alloc_fails(size_t bytes);

/* Returns n elements of `bytes` bytes each, all zero. The caller frees them. */
void *xcalloc(size_t n, size_t bytes) __attribute__((malloc, returns_nonnull));
/* Resizes `old` (may be NULL) to n elements of `bytes` bytes each; new elements are not
 * initialized. Returns NULL only if n or bytes is 0. */
void *xreallocarray(void *old, size_t n, size_t bytes);
/* Appends a zeroed element to a list of *n elements (may be NULL), and increments *n. */
void *xgrow(void *list, size_t *n, size_t bytes) __attribute__((returns_nonnull));
/* Returns a copy of the text, which the caller frees. */
char *xstrdup(const char *text) __attribute__((malloc, returns_nonnull));

#endif
