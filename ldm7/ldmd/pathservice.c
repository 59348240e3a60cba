/* SPDX-License-Identifier: Apache-2.0 */
#include "pathservice.h"

#include <stdlib.h>

#include "pathservice_state.h"

/* Pause before a refused request is repeated for a new subscriber. */
#define PROMPTED_PAUSE_NS (5 * SECOND)

/* ------------------------------------------------------------- leaves and their subscribers */

void pathservice_leave(struct pathservice *p)
{
    if (--p->depth > 0)
        return;
    for (struct leaf **at = &p->leaves; *at;) {
        struct leaf *l = *at;

        if (l->wants || l->there != LEAF_ABSENT || l == p->sent.leaf) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        free(l);
    }
}

struct leaf *pathservice_find_leaf(const struct pathservice *p, const struct path_endpoint *at)
{
    struct leaf *l = p->leaves;

    while (l && !path_endpoint_equal(&l->at, at))
        l = l->next;
    return l;
}

struct leaf *pathservice_get_leaf(struct pathservice *p, const struct path_endpoint *at)
{
    struct leaf *l = pathservice_find_leaf(p, at), **end = &p->leaves;

    if (l)
        return l;
    l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->at = *at;
    while (*end)
        end = &(*end)->next;
    *end = l;
    return l;
}

void pathservice_tell(struct pathservice *p, struct leaf *l, uint64_t since, enum path_verdict v)
{
    for (;;) {
        struct want **at = &l->wants;

        while (*at && ((*at)->told || (*at)->since_ns > since))
            at = &(*at)->next;
        struct want *w = *at;
        if (!w)
            return;
        void *user = w->user;
        w->told = true;
        if (v != PATH_CONFIRMED) {
            *at = w->next;
            free(w);
        }
        if (!p->finishing)
            p->cfg.verdict(p->cfg.ctx, user, v);
    }
}

bool pathservice_leaf_is_served(const struct leaf *l)
{
    for (const struct want *w = l->wants; w; w = w->next)
        if (w->told)
            return true;
    return false;
}

bool pathservice_want(struct pathservice *p, const struct path_endpoint *at, void *user,
                      uint64_t now)
{
    struct want *w = calloc(1, sizeof *w);
    struct leaf *l = !w ? NULL : pathservice_get_leaf(p, at);

    if (!l) {
        free(w);
        return false;
    }
    p->depth++;
    if (!l->wants) {
        l->due_ns = now;
        l->failures = l->missing = 0;
    }
    if (p->path_refused && p->path_due_ns > p->path_tried_ns + PROMPTED_PAUSE_NS)
        p->path_due_ns = p->path_tried_ns + PROMPTED_PAUSE_NS;
    *w = (struct want){.next = l->wants, .user = user, .since_ns = now};
    l->wants = w;
    if (l->confirmed)
        pathservice_tell(p, l, NEVER, PATH_CONFIRMED);
    pathservice_leave(p);
    return true;
}

void pathservice_unwant(struct pathservice *p, const void *user, uint64_t now)
{
    p->depth++;
    for (struct leaf *l = p->leaves; l; l = l->next)
        for (struct want **at = &l->wants; *at; at = &(*at)->next) {
            struct want *w = *at;

            if (w->user != user)
                continue;
            *at = w->next;
            free(w);
            if (!l->wants) {
                l->due_ns = now;
                l->failures = 0;
            }
            pathservice_leave(p);
            return;
        }
    pathservice_leave(p);
}

/* ------------------------------------------------------------------ what to do next */

static struct plan next_plan(const struct pathservice *p)
{
    struct plan best = {.step = STEP_CREATE, .due_ns = p->audit_ns};

    if (p->finishing) {
        bool is_there = p->ready || p->unsure;

        return (struct plan){.step = is_there ? STEP_DELETE : STEP_NONE,
                             .due_ns = is_there ? later(p->service_due_ns, p->path_due_ns) : NEVER};
    }
    if (!p->ready)
        return (struct plan){.step = p->path_step,
                             .due_ns = later(p->service_due_ns, p->path_due_ns)};
    for (struct leaf *l = p->leaves; l; l = l->next) {
        bool add = l->wants && !l->confirmed;

        if ((add || (!l->wants && l->there != LEAF_ABSENT)) && l->due_ns < best.due_ns)
            best = (struct plan){add ? STEP_ADD : STEP_REMOVE, l, l->due_ns};
    }
    best.due_ns = later(best.due_ns, p->service_due_ns);
    return best;
}

bool pathservice_request(struct pathservice *p, uint64_t now, struct path_request *out)
{
    struct plan plan = next_plan(p);
    const char *name = p->cfg.name;

    if (p->sent.step != STEP_NONE || plan.step == STEP_NONE || now < plan.due_ns)
        return false;
    switch (plan.step) {
    case STEP_LOOK: path_request_path(out, PATH_GET, name); break;
    case STEP_REPLACE:
    case STEP_DELETE: path_request_path(out, PATH_DELETE, name); break;
    case STEP_ADD:
        path_request_add(out, name, &plan.leaf->at);
        out->brief = !plan.leaf->in_full;
        break;
    case STEP_REMOVE:
        path_request_remove(out, name, &plan.leaf->at);
        out->brief = true;
        plan.leaf->confirmed = false;
        break;
    default: path_request_create(out, name, &p->cfg.root, p->cfg.rate_bps); break;
    }
    if (!plan.leaf)
        p->path_tried_ns = now;
    p->sent = plan;
    p->sent_ns = now;
    return true;
}

uint64_t pathservice_deadline(const struct pathservice *p)
{
    uint64_t due = p->sent.step == STEP_NONE ? next_plan(p).due_ns : NEVER;

    for (const struct leaf *l = p->leaves; l && !p->finishing; l = l->next)
        for (const struct want *w = l->wants; w; w = w->next)
            if (!w->told && w->since_ns + p->cfg.timeout_ns < due)
                due = w->since_ns + p->cfg.timeout_ns;
    return due;
}

void pathservice_tend(struct pathservice *p, uint64_t now)
{
    p->depth++;
    for (struct leaf *l = p->leaves; l && now >= p->cfg.timeout_ns; l = l->next) {
        bool waited = l->wants;

        pathservice_tell(p, l, now - p->cfg.timeout_ns, PATH_TIMED_OUT);
        if (waited && !l->wants)
            l->due_ns = now;
    }
    pathservice_leave(p);
}

/* ------------------------------------------------------------------ beginning and end */

struct pathservice *pathservice_new(const struct path_config *config, uint64_t now)
{
    struct pathservice *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->cfg = *config;
    p->path_step = STEP_CREATE;
    p->path_due_ns = now;
    return p;
}

void pathservice_free(struct pathservice *p)
{
    if (!p)
        return;
    for (struct leaf *l = p->leaves, *next; l; l = next) {
        next = l->next;
        for (struct want *w = l->wants, *after; w; w = after) {
            after = w->next;
            free(w);
        }
        free(l);
    }
    free(p);
}

void pathservice_finish(struct pathservice *p, uint64_t now)
{
    p->finishing = true;
    p->path_due_ns = p->service_due_ns = now;
}

bool pathservice_is_finished(const struct pathservice *p)
{
    return p->finishing && p->sent.step == STEP_NONE && !p->ready && !p->unsure;
}
