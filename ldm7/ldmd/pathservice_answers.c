/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles the path service's answers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "pathservice_state.h"

#define RETRY_AFTER_MAX_S 60u
/* Pause before a refused request is repeated without a new subscriber. */
#define REFUSED_PAUSE_NS (60 * SECOND)
#define SILENT_LOG_NS (60 * SECOND)

static size_t leaves_there(const struct pathservice *p)
{
    size_t n = 0;

    for (const struct leaf *l = p->leaves; l; l = l->next)
        n += l->there == LEAF_PRESENT;
    return n;
}

static void tell_all(struct pathservice *p, enum path_verdict v)
{
    for (struct leaf *l = p->leaves; l; l = l->next)
        pathservice_tell(p, l, NEVER, v);
}

static bool is_anybody_served(const struct pathservice *p)
{
    for (const struct leaf *l = p->leaves; l; l = l->next)
        if (pathservice_leaf_is_served(l))
            return true;
    return false;
}

static size_t count_wants(const struct leaf *l)
{
    size_t n = 0;

    for (const struct want *w = l->wants; w; w = w->next)
        n++;
    return n;
}

static uint64_t first_waiting_ns(const struct leaf *l, uint64_t now)
{
    uint64_t since = now;

    for (const struct want *w = l->wants; w; w = w->next)
        if (!w->told && w->since_ns < since)
            since = w->since_ns;
    return since;
}

static bool is_success(const struct path_answer *a)
{
    return a->status >= 200 && a->status < 300;
}

/* Returns whether the request was neither done nor refused, and must be repeated. */
static bool is_transient(const struct path_answer *a)
{
    return a->status == 0 || a->status == 408 || a->status == 425 || a->status == 429 ||
           a->status >= 500 ||
           (a->status == 409 && path_problem_is(a->body, a->body_bytes, "path-held"));
}

static const char *answer_text(const struct path_answer *a, char *out, size_t out_bytes)
{
    if (a->status == 0)
        snprintf(out, out_bytes, "%s", a->why ? a->why : "no answer");
    else
        path_problem_text(a->body, a->body_bytes, out, out_bytes);
    return out;
}

/* about: the leaf; NULL: the path itself. */
static void log_answer(const struct pathservice *p, const struct leaf *about, const char *what,
                       unsigned status, const char *text)
{
    char at[PATH_ENDPOINT_TEXT];

    log_warn("Path service: %s: path=%s, endpoint=%s, status=%u, problem=\"%s\"", what, p->cfg.name,
             path_endpoint_format(about ? &about->at : &p->cfg.root, at), status, text);
}

/* Returns true if the service itself is unreachable. Then nothing else is requested for a while. */
static void note_service(struct pathservice *p, const struct path_answer *a, uint64_t now)
{
    uint64_t pause = pathservice_pause_ns(p->service_failures), asked_s = a->retry_after_s;

    if (a->status != 0 && a->status != 429 && a->status != 503) {
        if (p->service_failures > 0 && p->silent_logged_ns > 0)
            log_note("Path service: answers again: path=%s", p->cfg.name);
        p->service_failures = 0;
        p->silent_logged_ns = 0;
        return;
    }
    p->service_failures++;
    if (asked_s > RETRY_AFTER_MAX_S)
        asked_s = RETRY_AFTER_MAX_S;
    p->service_due_ns = now + later(pause, asked_s * SECOND);
    char text[PATH_TEXT_MAX];
    answer_text(a, text, sizeof text);
    if (p->silent_logged_ns > 0 && now < p->silent_logged_ns + SILENT_LOG_NS &&
        strcmp(text, p->silent_text) == 0)
        return;
    p->silent_logged_ns = later(now, 1);
    memcpy(p->silent_text, text, sizeof text);
    log_answer(p, NULL, "no service", a->status, text);
}

static void leaf_fails(struct leaf *l, uint64_t now)
{
    l->due_ns = now + pathservice_pause_ns(l->failures++);
}

static void path_fails(struct pathservice *p, uint64_t now)
{
    p->path_due_ns = p->audit_ns = now + pathservice_pause_ns(p->path_failures++);
}

static void path_is_refused(struct pathservice *p, unsigned status, const char *text, uint64_t now)
{
    log_answer(p, NULL, "refused", status, text);
    p->ready = p->announced = false;
    p->path_refused = true;
    p->path_step = STEP_CREATE;
    p->path_due_ns = now + REFUSED_PAUSE_NS;
    tell_all(p, PATH_REFUSED);
}

/* Compares what the service has with what we believed it has. */
static void take_view(struct pathservice *p, const struct path_view *v, uint64_t now)
{
    char at[PATH_ENDPOINT_TEXT];

    for (struct leaf *l = p->leaves; l; l = l->next) {
        const struct path_view_leaf *found = path_view_find(v, &l->at);

        if (l->confirmed && (!found || found->down)) {
            log_warn("Path service: leaf %s: path=%s, endpoint=%s", !found ? "lost" : "down",
                     p->cfg.name, path_endpoint_format(&l->at, at));
            l->confirmed = false;
            l->due_ns = now;
        }
        l->there = found ? LEAF_PRESENT : LEAF_ABSENT;
    }
    for (size_t i = 0; i < v->nleaves; i++) {
        struct leaf *l;

        if (pathservice_find_leaf(p, &v->leaves[i].at) ||
            !(l = pathservice_get_leaf(p, &v->leaves[i].at)))
            continue;
        l->there = LEAF_PRESENT;
        l->due_ns = now + p->cfg.grace_ns;
    }
}

static void path_is_ready(struct pathservice *p, const struct path_view *v, uint64_t now)
{
    p->ready = true;
    p->unsure = p->path_refused = false;
    p->path_failures = 0;
    p->path_step = STEP_CREATE;
    p->audit_ns = now + PATH_AUDIT_S * SECOND;
    take_view(p, v, now);
    char at[PATH_ENDPOINT_TEXT];
    if (!p->announced)
        log_note("Path service: path ready: path=%s, root=%s, rate_bps=%" PRIu64
                 ", ms=%.1f, leaves=%zu",
                 p->cfg.name, path_endpoint_format(&v->root, at), v->rate_bps,
                 ms_since(p->sent_ns, now), v->nleaves);
    p->announced = true;
}

/* The path exists with other properties, so it could not be created. */
static void look(struct pathservice *p, const struct path_view *v, uint64_t now)
{
    if (!path_endpoint_equal(&v->root, &p->cfg.root)) {
        char at[PATH_ENDPOINT_TEXT], text[PATH_TEXT_MAX];
        snprintf(text, sizeof text, "a path of this name exists with root %s; it is left unchanged",
                 path_endpoint_format(&v->root, at));
        p->unsure = false;
        path_is_refused(p, 409, text, now);
    } else if (v->rate_bps == p->cfg.rate_bps || is_anybody_served(p)) {
        if (v->rate_bps != p->cfg.rate_bps)
            log_warn("Path service: another rate: path=%s, rate_bps=%" PRIu64 ", not %" PRIu64,
                     p->cfg.name, v->rate_bps, p->cfg.rate_bps);
        path_is_ready(p, v, now);
    } else {
        log_note("Path service: replaced: path=%s, rate_bps=%" PRIu64 ", not %" PRIu64, p->cfg.name,
                 v->rate_bps, p->cfg.rate_bps);
        p->ready = p->announced = false;
        p->path_step = STEP_REPLACE;
        p->path_due_ns = now;
    }
}

static void on_path(struct pathservice *p, enum step step, const struct path_answer *a,
                    uint64_t now)
{
    struct path_view v = {.leaves = NULL};
    const char *why = NULL;

    char text[PATH_TEXT_MAX];
    if (step == STEP_CREATE && a->status == 409 && !is_transient(a)) {
        p->ready = false;
        p->path_step = STEP_LOOK;
        p->path_due_ns = now;
    } else if (step != STEP_CREATE && a->status == 404) {
        p->path_step = STEP_CREATE;
        p->path_due_ns = now + pathservice_pause_ns(p->path_failures++);
    } else if (is_transient(a)) {
        p->unsure = p->unsure || step == STEP_CREATE;
        path_fails(p, now);
        if (a->status != 0 && a->status != 429 && a->status != 503)
            log_answer(p, NULL, "not done yet", a->status, answer_text(a, text, sizeof text));
    } else if (!is_success(a)) {
        path_is_refused(p, a->status, answer_text(a, text, sizeof text), now);
    } else if (step == STEP_REPLACE) {
        p->path_step = STEP_CREATE;
        p->path_due_ns = now;
    } else if (!path_view_parse(&v, a->body, a->body_bytes, &why) ||
               strcmp(v.name, p->cfg.name) != 0) {
        p->unsure = p->unsure || step == STEP_CREATE;
        path_fails(p, now);
        log_answer(p, NULL, "invalid answer", a->status, why ? why : "of another path");
    } else if (step == STEP_LOOK) {
        look(p, &v, now);
    } else {
        path_is_ready(p, &v, now);
    }
    path_view_free(&v);
}

static void leaf_is_refused(struct pathservice *p, struct leaf *l, const struct path_answer *a,
                            uint64_t now)
{
    char text[PATH_TEXT_MAX];

    log_answer(p, l, "refused", a->status, answer_text(a, text, sizeof text));
    if (l->there == LEAF_UNSURE)
        l->there = LEAF_ABSENT;
    l->due_ns = now + REFUSED_PAUSE_NS;
    pathservice_tell(p, l, NEVER, PATH_REFUSED);
}

/* Returns NULL if the answer confirms the leaf. A summary does so if the whole path is up. */
static const char *why_unconfirmed(const struct pathservice *p, struct leaf *l,
                                   const struct path_answer *a)
{
    bool is_up;

    char name[PATH_NAME_MAX + 1];
    if (path_summary_parse(a->body, a->body_bytes, name, &is_up)) {
        l->in_full = !is_up;
        return strcmp(name, p->cfg.name) != 0 ? "of another path" : is_up ? NULL : "degraded";
    }
    struct path_view v;
    const char *why;
    if (path_view_parse(&v, a->body, a->body_bytes, &why)) {
        const struct path_view_leaf *found = path_view_find(&v, &l->at);
        why = strcmp(v.name, p->cfg.name) != 0 ? "of another path"
              : !found                         ? "without the leaf"
              : found->down                    ? "the leaf is not served at present"
                                               : NULL;
    }
    path_view_free(&v);
    return why;
}

static void on_added(struct pathservice *p, struct leaf *l, const struct path_answer *a,
                     uint64_t now)
{
    bool was_in_full = l->in_full;
    const char *why = why_unconfirmed(p, l, a);

    l->there = !why ? LEAF_PRESENT : LEAF_UNSURE;
    if (!why) {
        l->confirmed = true;
        l->in_full = false;
        l->failures = l->missing = 0;
        char at[PATH_ENDPOINT_TEXT];
        log_note("Path service: leaf %s: path=%s, endpoint=%s, ms=%.1f, waited_ms=%.1f, "
                 "users=%zu, leaves=%zu",
                 pathservice_leaf_is_served(l) ? "restored" : "added", p->cfg.name,
                 path_endpoint_format(&l->at, at), ms_since(p->sent_ns, now),
                 ms_since(first_waiting_ns(l, now), now), count_wants(l), leaves_there(p));
        pathservice_tell(p, l, NEVER, PATH_CONFIRMED);
    } else if (l->in_full && !was_in_full) {
        l->due_ns = now; /* some leaf is down: find out whether it is this one */
    } else {
        if (l->failures == 0)
            log_answer(p, l, "not confirmed", a->status, why);
        leaf_fails(l, now);
    }
}

static void on_leaf(struct pathservice *p, enum step step, struct leaf *l,
                    const struct path_answer *a, uint64_t now)
{
    char text[PATH_TEXT_MAX], at[PATH_ENDPOINT_TEXT];

    if (is_transient(a)) {
        l->there = LEAF_UNSURE;
        if (l->failures == 0 && a->status != 0 && a->status != 429 && a->status != 503)
            log_answer(p, l, "not done yet", a->status, answer_text(a, text, sizeof text));
        leaf_fails(l, now);
    } else if (step == STEP_ADD && is_success(a)) {
        on_added(p, l, a, now);
    } else if (step == STEP_ADD && a->status == 404 &&
               path_problem_is(a->body, a->body_bytes, "unknown-path")) {
        p->ready = p->announced = false; /* the path is gone: it must be created again first */
        p->path_due_ns = l->missing > 0 ? now + pathservice_pause_ns(l->missing) : now;
        l->missing++;
        l->due_ns = now;
    } else if (step == STEP_ADD) {
        leaf_is_refused(p, l, a, now);
    } else if (is_success(a) || a->status == 404) {
        l->there = LEAF_ABSENT;
        l->failures = 0;
        log_note("Path service: leaf removed: path=%s, endpoint=%s, ms=%.1f, leaves=%zu",
                 p->cfg.name, path_endpoint_format(&l->at, at), ms_since(p->sent_ns, now),
                 leaves_there(p));
    } else {
        log_answer(p, l, "not removed", a->status, answer_text(a, text, sizeof text));
        l->due_ns = l->wants ? now : now + REFUSED_PAUSE_NS;
    }
}

static void on_deleted(struct pathservice *p, const struct path_answer *a, uint64_t now)
{
    if (is_transient(a)) {
        path_fails(p, now);
        return;
    }
    p->ready = p->unsure = false;
    char text[PATH_TEXT_MAX];
    if (is_success(a) || a->status == 404)
        log_note("Path service: path deleted: path=%s, ms=%.1f", p->cfg.name,
                 ms_since(p->sent_ns, now));
    else
        log_answer(p, NULL, "refused", a->status, answer_text(a, text, sizeof text));
}

void pathservice_answer(struct pathservice *p, const struct path_answer *a, uint64_t now)
{
    struct plan sent = p->sent;

    p->depth++;
    p->sent = (struct plan){.step = STEP_NONE};
    note_service(p, a, now);
    switch (sent.step) {
    case STEP_NONE: break;
    case STEP_ADD:
    case STEP_REMOVE: on_leaf(p, sent.step, sent.leaf, a, now); break;
    case STEP_DELETE: on_deleted(p, a, now); break;
    default: on_path(p, sent.step, a, now); break;
    }
    pathservice_leave(p);
}
