/* SPDX-License-Identifier: Apache-2.0
 *
 * The multipoint path of one MULTICAST entry at the path service (DRFSM21 2.2.2; REST in
 * docs/reference/contracts.md, "Controller"): which leaves subscribers want, which the service has,
 * and the next request that brings the one to the other. No socket, no clock: requests leave by
 * pathservice_request(), answers come by pathservice_answer().
 *
 * The path is ours: it is created at the start, leaves that no subscriber wants are removed (those
 * found at the service after grace_ns only, so that subscribers can come back after a restart),
 * what is missing there is added again, and it is deleted at the end. Requests are idempotent and
 * go one after the other; what was not answered, or not confirmed, is asked again with growing
 * pauses.
 */
#ifndef LDMD_PATHSERVICE_H
#define LDMD_PATHSERVICE_H

#include "pathrest.h"

#define PATH_AUDIT_S 30u /* how often the service is asked what it has */

enum path_verdict {
    PATH_CONFIRMED, /* the leaf's flow entries are in place */
    PATH_REFUSED,
    PATH_TIMED_OUT
};

struct path_config {
    char name[PATH_NAME_MAX + 1];
    struct path_endpoint root;
    uint64_t rate_bps;
    uint64_t timeout_ns; /* how long a subscriber waits */
    uint64_t grace_ns;
    void *ctx;
    /* Once for each want, unless it is taken back before. After PATH_CONFIRMED the want lasts until
     * pathservice_unwant(), after the others it is over. May call both. */
    void (*verdict)(void *ctx, void *user, enum path_verdict v);
};

struct path_answer {
    unsigned status;        /* HTTP's; 0: there was no answer */
    unsigned retry_after_s; /* 0: not given */
    const char *body;
    size_t body_bytes;
    const char *why; /* why there was no answer */
};

struct pathservice;

/* NULL: errno. */
struct pathservice *pathservice_new(const struct path_config *config, uint64_t now);
/* Asks the service for nothing more. p may be NULL. */
void pathservice_free(struct pathservice *p);

/* Notes that user (not NULL) wants the leaf; several may want the same one. false: no memory. */
bool pathservice_want(struct pathservice *p, const struct path_endpoint *leaf, void *user,
                      uint64_t now);
/* The user no longer wants it (or never did). */
void pathservice_unwant(struct pathservice *p, const void *user, uint64_t now);
/* From now on the path will be deleted; subscribers no longer get an answer. */
void pathservice_finish(struct pathservice *p, uint64_t now);
/* As far as this server knows, the service has nothing left of what it made. */
bool pathservice_is_finished(const struct pathservice *p);

/* The request to send now. false: there is none, or an answer is still due. */
bool pathservice_request(struct pathservice *p, uint64_t now, struct path_request *out);
/* The answer to it. */
void pathservice_answer(struct pathservice *p, const struct path_answer *a, uint64_t now);
/* Answers users that have waited too long. Call it at pathservice_deadline(), when there may also
 * be a request to send; UINT64_MAX: not before something happens. */
void pathservice_tend(struct pathservice *p, uint64_t now);
/* When to call pathservice_tend() next, in the scale of `now` (ns). */
uint64_t pathservice_deadline(const struct pathservice *p);

#endif
