/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

void progress_start(struct progress *p)
{
    p->first = p->count = 0;
    p->started = p->passed = p->has_last = false;
}

static struct progress_cell *cell(struct progress *p, uint32_t index)
{
    return &p->cells[index & (p->cap - 1)];
}

static void grow(struct progress *p, uint32_t count)
{
    struct progress bigger = *p;

    for (bigger.cap = p->cap == 0 ? 64 : p->cap; bigger.cap < count; bigger.cap *= 2)
        ;
    if (bigger.cap == p->cap)
        return;
    bigger.cells = xcalloc(bigger.cap, sizeof *bigger.cells);
    for (uint32_t i = 0; i < p->count; i++)
        *cell(&bigger, p->first + i) = *cell(p, p->first + i);
    free(p->cells);
    *p = bigger;
}

static void pass_first(struct progress *p)
{
    const struct progress_cell *c = cell(p, p->first);

    if (!c->settled)
        p->given_up++;
    else if (c->has_sig) {
        p->last = c->sig;
        p->has_last = true;
    }
    p->first++;
    p->count--;
    p->passed = true;
}

/* Handles an index older than all known ones: the first ones of a session may arrive out of
 * order. */
static bool extend_down(struct progress *p, uint32_t index)
{
    uint32_t more = p->first - index;

    if (p->passed || more > PROGRESS_MAX - p->count)
        return false;
    grow(p, p->count + more);
    for (uint32_t i = index; i != p->first; i++)
        *cell(p, i) = (struct progress_cell){0};
    p->first = index;
    p->count += more;
    return true;
}

/* Returns false if the index is not needed (any more). */
static bool know(struct progress *p, uint32_t index)
{
    if (!p->started) {
        p->started = true;
        p->first = index;
        p->count = 0;
    }
    uint32_t at = index - p->first;
    if (at < p->count)
        return true;
    if (at > UINT32_MAX / 2)
        return extend_down(p, index);
    if (at >= PROGRESS_MAX && at - PROGRESS_MAX >= p->count) { /* a jump: none of it is tracked */
        p->given_up += p->count;
        p->first = index;
        p->count = at = 0;
    }
    while (at >= PROGRESS_MAX) {
        pass_first(p);
        at--;
    }
    grow(p, at + 1);
    for (; p->count <= at; p->count++)
        *cell(p, p->first + p->count) = (struct progress_cell){0};
    return true;
}

void progress_known(struct progress *p, uint32_t index)
{
    (void)know(p, index);
}

void progress_settled(struct progress *p, uint32_t index, const struct pq_signature *sig)
{
    if (!know(p, index))
        return;
    struct progress_cell *c = cell(p, index);
    c->settled = true;
    c->has_sig = sig;
    if (sig)
        c->sig = *sig;
    while (p->count > 0 && cell(p, p->first)->settled)
        pass_first(p);
}

bool progress_last(const struct progress *p, struct pq_signature *out)
{
    if (p->has_last)
        *out = p->last;
    return p->has_last;
}

void progress_free(struct progress *p)
{
    free(p->cells);
    *p = (struct progress){0};
}
