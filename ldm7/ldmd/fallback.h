/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM6 instead of LDM7, from the same server, as long as there is no multicast (MPUP16 I). It is an
 * ordinary LDM6 downstream in its own process. Its resume file passes on in both directions which
 * products are complete, so that the two continue without a gap.
 */
#ifndef LDMD_FALLBACK_H
#define LDMD_FALLBACK_H

#include "process.h"

struct fallback {
    const struct options *opt;
    struct conf_request request;
    pid_t pid; /* 0: not running */
    uint64_t not_before_ns;
};

/* Makes a fallback that does not run yet. Its request follows from the RECEIVE entry. opt must
 * outlive it. */
void fallback_init(struct fallback *f, const struct options *opt, const struct conf_receive *rcv);
/* Starts it if it does not run. last: the newest complete product; NULL: none is known. close_mine:
 * called in the new process, frees what it inherited. */
void fallback_start(struct fallback *f, struct pq *queue, const struct pq_signature *last,
                    void (*close_mine)(void *ctx), void *ctx);
/* Call this after SIGCHLD: notices its end. */
void fallback_reap(struct fallback *f);
/* Ends it. Returns true if *last is the newest product that arrived completely. */
bool fallback_stop(struct fallback *f, struct pq_signature *last);

#endif
