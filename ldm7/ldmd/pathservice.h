/* SPDX-License-Identifier: Apache-2.0
 *
 * The multipoint path of one MULTICAST entry at the path service (DRFSM21 2.2.2; REST in
 * docs/reference/contracts.md, "Controller"): which leaves subscribers want, which ones the service
 * has, and the next request that brings these into line. No socket, no clock: requests leave by
 * pathservice_request(), answers arrive by pathservice_answer().
 *
 * The path belongs to this server: it is created at the start and deleted at the end. Leaves that
 * no subscriber wants are removed (those found at the service only after grace_ns, so that
 * subscribers can come back after a restart), and missing ones are added again. Requests are
 * idempotent and sent one at a time; what was not answered or not confirmed is requested again with
 * growing pauses.
 */
#ifndef LDMD_PATHSERVICE_H
#define LDMD_PATHSERVICE_H

#include "pathrest.h"

#define PATH_AUDIT_S 30u /* how often to ask the service what it has */

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
    /* Called once for each want, unless it is withdrawn before. After PATH_CONFIRMED the want lasts
     * until pathservice_unwant(), after the others it is over. May call both. */
    void (*verdict)(void *ctx, void *user, enum path_verdict v);
};

struct path_answer {
    unsigned status;        /* of HTTP; 0: there was no answer */
    unsigned retry_after_s; /* 0: not given */
    const char *body;
    size_t body_bytes;
    const char *why; /* why there was no answer */
};

struct pathservice;

/* Returns NULL with errno on failure. */
struct pathservice *pathservice_new(const struct path_config *config, uint64_t now);
/* Sends no more requests to the service. p may be NULL. */
void pathservice_free(struct pathservice *p);

/* Records that user (not NULL) wants the leaf; several users may want the same one. Returns false
 * without memory. */
bool pathservice_want(struct pathservice *p, const struct path_endpoint *leaf, void *user,
                      uint64_t now);
/* The user no longer wants it (or never did). */
void pathservice_unwant(struct pathservice *p, const void *user, uint64_t now);
/* Starts to delete the path; subscribers no longer get an answer. */
void pathservice_finish(struct pathservice *p, uint64_t now);
/* Returns whether, as far as this server knows, the service has nothing left of what it created. */
bool pathservice_is_finished(const struct pathservice *p);

/* Returns the request to send now; false: there is none, or an answer is still due. */
bool pathservice_request(struct pathservice *p, uint64_t now, struct path_request *out);
/* Takes the answer to it. */
void pathservice_answer(struct pathservice *p, const struct path_answer *a, uint64_t now);
/* Answers users that have waited too long. Call this at pathservice_deadline(), when there may also
 * be a request to send; UINT64_MAX: not before something happens. */
void pathservice_tend(struct pathservice *p, uint64_t now);
/* Returns when to call pathservice_tend() next, on the scale of `now` (ns). */
uint64_t pathservice_deadline(const struct pathservice *p);

#endif
