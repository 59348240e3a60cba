/* SPDX-License-Identifier: Apache-2.0 */
#include "failing_memory.h"

#include <errno.h>
#include <stddef.h>

static unsigned left; /* allocations up to and including the one that fails; 0: none fails */
static bool failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_reallocarray(void *old, size_t n, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_reallocarray(void *old, size_t n, size_t bytes);

void memory_fails_at(unsigned n)
{
    left = n;
    failed = false;
}

bool memory_failed(void)
{
    left = 0;
    return failed;
}

static bool fails(void)
{
    if (left == 0 || --left > 0)
        return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __real_realloc(old, bytes);
}

void *__wrap_reallocarray(void *old, size_t n, size_t bytes)
{
    return fails() ? NULL : __real_reallocarray(old, n, bytes);
}
