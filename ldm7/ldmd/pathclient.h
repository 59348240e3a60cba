/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries the requests of pathservice.h over HTTP (libcurl), within a process's loop: nothing
 * blocks, no answer is longer than PATH_BODY_MAX, none takes longer than PATH_REQUEST_S or
 * path.timeout_s.
 */
#ifndef LDMD_PATHCLIENT_H
#define LDMD_PATHCLIENT_H

#include "conf.h"
#include "loop.h"
#include "pathservice.h"

#define PATH_REQUEST_S 15 /* the service waits 5 s for its switches */

struct pathclient;

/* loop, set and core must outlive it. Returns NULL after logging the reason. */
struct pathclient *pathclient_open(struct loop *loop, const struct conf_settings *set,
                                   struct pathservice *core);
/* Aborts a request in progress. c may be NULL. */
void pathclient_close(struct pathclient *c);
/* Call this at each turn of the loop: it sends what is due. Returns when to call it again at the
 * latest. */
uint64_t pathclient_tend(struct pathclient *c, uint64_t now);

#define PATH_TOKEN_MAX 1024u
/* Reads the token from a file that only its owner may read or write: one line of graphic
 * characters. Returns -1; why holds the reason. */
int pathclient_token(const char *path, char out[PATH_TOKEN_MAX], char *why, size_t why_bytes);

#endif
