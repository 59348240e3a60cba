/* SPDX-License-Identifier: Apache-2.0
 *
 * The test plays a path's subscribers and the path service: requests are compared with
 * docs/reference/contracts.md, answers are written by hand. One pathservice at a time.
 */
#ifndef PATHSERVICE_KIT_H
#define PATHSERVICE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ldmd/pathservice.h"

#define S 1000000000ull
#define TIMEOUT_S 25u
#define GRACE_S 20u
#define USERS 64
extern int verdicts[USERS]; /* what each user was told last; -1: nothing yet */
extern unsigned nverdicts[USERS];

#define CREATE \
    "{\"name\":\"NGRID\",\"root\":{\"switch\":\"s1\",\"port\":1,\"vlan\":101},\"rate_bps\":20000000}"
#define LEAF0 "{\"switch\":\"sw\",\"port\":1,\"vlan\":200}"
#define LEAF1 "{\"switch\":\"sw\",\"port\":2,\"vlan\":201}"
#define NO_PATH \
    "{\"type\":\"urn:downpour:problem:unknown-path\",\"title\":\"Unknown path\",\"status\":404}"
#define PROBLEM \
    "{\"type\":\"urn:downpour:problem:no-capacity\",\"title\":\"Not enough capacity\",\"status\":409,\"detail\":\"link a-b\"}"

/* Leaf number i. */
struct path_endpoint leaf(unsigned i);
/* Returns a pathservice without subscribers at time 0, to be freed by the caller. */
struct pathservice *start(void);
/* The user wants leaf number `at`, or nothing any longer. now: ns. */
void want(struct pathservice *p, unsigned user, unsigned at, uint64_t now);
void unwant(struct pathservice *p, unsigned user, uint64_t now);
/* Require that the next request is this one, or that there is none. */
void expect_request(struct pathservice *p, uint64_t now, enum path_method method,
                    const char *target, const char *body);
void expect_nothing(struct pathservice *p, uint64_t now);
void answer(struct pathservice *p, uint64_t now, unsigned status, const char *body);
/* Returns a path with the leaves whose bits are set; those of `down` are not served. Static
 * memory. */
const char *view(unsigned leaves, unsigned down);
/* Answers the creation of the path; `found`: the leaves that it already had. */
void make(struct pathservice *p, unsigned found);

#endif
