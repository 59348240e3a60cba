/* SPDX-License-Identifier: Apache-2.0 */
#include "alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"

void alloc_fails(size_t bytes)
{
    log_error("out of memory: cannot allocate %zu bytes", bytes);
    _exit(ALLOC_EXIT);
}

static size_t product(size_t n, size_t bytes)
{
    size_t all;

    return __builtin_mul_overflow(n, bytes, &all) ? SIZE_MAX : all;
}

void *xcalloc(size_t n, size_t bytes)
{
    void *p = calloc(n > 0 ? n : 1, bytes > 0 ? bytes : 1);

    if (!p)
        alloc_fails(product(n, bytes));
    return p;
}

void *xreallocarray(void *old, size_t n, size_t bytes)
{
    void *p = reallocarray(old, n, bytes);

    if (!p && n > 0 && bytes > 0)
        alloc_fails(product(n, bytes));
    return p;
}

void *xgrow(void *list, size_t *n, size_t bytes)
{
    if (*n == SIZE_MAX)
        alloc_fails(SIZE_MAX);
    char *longer = xreallocarray(list, *n + 1, bytes);
    memset(longer + *n * bytes, 0, bytes);
    ++*n;
    return longer;
}

char *xstrdup(const char *text)
{
    size_t bytes = strlen(text) + 1;

    return memcpy(xcalloc(1, bytes), text, bytes);
}
