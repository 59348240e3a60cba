/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of pathservice: what pathservice.c (subscribers' wants, the next request) and
 * pathservice_answers.c (what the service says) share. Not for other files.
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
    unsigned failures; /* in a row */
    bool in_full;      /* a summary did not say enough */
    unsigned missing;  /* how often the service did not know the path, in a row */
    uint64_t due_ns;   /* nothing is asked before */
};

/* What a request is for. */
enum step {
    STEP_NONE,
    STEP_CREATE,  /* the path, or only what is there */
    STEP_LOOK,    /* why it could not be created */
    STEP_REPLACE, /* our earlier path with another rate goes */
    STEP_ADD,
    STEP_REMOVE,
    STEP_DELETE /* the path, at the end */
};

struct plan {
    enum step step;
    struct leaf *leaf;
    uint64_t due_ns;
};

struct pathservice {
    struct path_config cfg;
    struct leaf *leaves; /* in the order of their first wants */
    struct plan sent;    /* step: STEP_NONE while no answer is awaited */
    uint64_t sent_ns;
    bool ready;          /* the path is there */
    bool unsure;         /* ... or may be: an answer is missing */
    enum step path_step; /* while it is not ready */
    uint64_t path_due_ns, path_tried_ns, audit_ns;
    unsigned path_failures;
    bool path_refused, announced;
    uint64_t service_due_ns; /* nothing at all is asked before */
    unsigned service_failures;
    uint64_t silent_logged_ns;
    char silent_text[PATH_TEXT_MAX]; /* what was logged */
    bool finishing;
    unsigned depth; /* of calls: leaves are freed when the outermost ends */
};

/* How long to wait after this many failures in a row. */
static inline uint64_t pathservice_pause_ns(unsigned failures)
{
    uint64_t pause = PAUSE_MIN_NS << (failures < 8 ? failures : 8);

    return pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS;
}

/* The later of two times. */
static inline uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Milliseconds from since_ns to now. */
static inline double ms_since(uint64_t since_ns, uint64_t now)
{
    return (double)(now - since_ns) / 1e6;
}

/* The leaf at that endpoint, or NULL. */
struct leaf *pathservice_find_leaf(const struct pathservice *p, const struct path_endpoint *at);
/* The same; creates the leaf if there is none. NULL: no memory. */
struct leaf *pathservice_get_leaf(struct pathservice *p, const struct path_endpoint *at);
/* True if a subscriber has been told that the leaf exists. */
bool pathservice_leaf_is_served(const struct leaf *l);
/* Tells all that have waited for this leaf since `since` (ns) or longer. A callback may change any
 * list. */
void pathservice_tell(struct pathservice *p, struct leaf *l, uint64_t since, enum path_verdict v);
/* The end of a call that began with p->depth++: the outermost frees leaves of no use. */
void pathservice_leave(struct pathservice *p);

#endif
