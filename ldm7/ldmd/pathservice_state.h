/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of pathservice, shared by pathservice.c (subscribers' wants, the next request) and
 * pathservice_answers.c (answers of the service). Not for other files.
 */
#ifndef LDMD_PATHSERVICE_STATE_H
#define LDMD_PATHSERVICE_STATE_H

#include "pathservice.h"

#define NEVER UINT64_MAX
#define SECOND 1000000000ull
#define PAUSE_MIN_NS (SECOND / 4)
#define PAUSE_MAX_NS (10 * SECOND)

struct want {
    struct want *next;
    void *user;
    uint64_t since_ns;
    bool told;
};

struct leaf {
    struct leaf *next;
    struct path_endpoint at;
    struct want *wants;
    enum { LEAF_ABSENT, LEAF_PRESENT, LEAF_UNSURE } there; /* at the service */
    bool confirmed;    /* the service answered our request for it */
    unsigned failures; /* consecutive */
    bool in_full;      /* a summary was not enough */
    unsigned missing;  /* consecutive answers that the path is unknown */
    uint64_t due_ns;   /* nothing is requested earlier */
};

/* The purpose of a request. */
enum step {
    STEP_NONE,
    STEP_CREATE,  /* create the path, or find out what exists */
    STEP_LOOK,    /* find out why it could not be created */
    STEP_REPLACE, /* delete our earlier path with another rate */
    STEP_ADD,
    STEP_REMOVE,
    STEP_DELETE /* delete the path, at the end */
};

struct plan {
    enum step step;
    struct leaf *leaf;
    uint64_t due_ns;
};

struct pathservice {
    struct path_config cfg;
    struct leaf *leaves; /* in the order of their first wants */
    struct plan sent;    /* step: STEP_NONE while no answer is due */
    uint64_t sent_ns;
    bool ready;          /* the path exists */
    bool unsure;         /* ... or may exist: an answer is missing */
    enum step path_step; /* while it is not ready */
    uint64_t path_due_ns, path_tried_ns, audit_ns;
    unsigned path_failures;
    bool path_refused, announced;
    uint64_t service_due_ns; /* nothing at all is requested earlier */
    unsigned service_failures;
    uint64_t silent_logged_ns;
    char silent_text[PATH_TEXT_MAX]; /* what was last logged */
    bool finishing;
    unsigned depth; /* of calls: leaves are freed when the outermost one ends */
};

/* Returns how long to wait after this many consecutive failures. */
static inline uint64_t pathservice_pause_ns(unsigned failures)
{
    uint64_t pause = PAUSE_MIN_NS << (failures < 8 ? failures : 8);

    return pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS;
}

/* Returns the later of two times. */
static inline uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns the milliseconds from since_ns to now. */
static inline double ms_since(uint64_t since_ns, uint64_t now)
{
    return (double)(now - since_ns) / 1e6;
}

/* Returns the leaf at that endpoint, or NULL. */
struct leaf *pathservice_find_leaf(const struct pathservice *p, const struct path_endpoint *at);
/* Does the same, but creates the leaf if there is none. NULL: no memory. */
struct leaf *pathservice_get_leaf(struct pathservice *p, const struct path_endpoint *at);
/* Returns whether a subscriber has been told that the leaf exists. */
bool pathservice_leaf_is_served(const struct leaf *l);
/* Gives the verdict to everyone who has waited for this leaf since `since` (ns) or longer. A
 * callback may change any list. */
void pathservice_tell(struct pathservice *p, struct leaf *l, uint64_t since, enum path_verdict v);
/* Ends a call that began with p->depth++: the outermost one frees unused leaves. */
void pathservice_leave(struct pathservice *p);

#endif
