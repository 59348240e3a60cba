/* SPDX-License-Identifier: Apache-2.0
 *
 * Which address is being sent which feeds: a table in memory that the server's children share. One
 * address gets a product at most once at a time (LDM-6.15.0 enable-anti-DOS): a new feed ends older
 * ones of the same address that it covers (their connections may be dead), and is reduced by those
 * that it does not.
 */
#ifndef LDMD_FEEDS_H
#define LDMD_FEEDS_H

#include <sys/types.h>

#include "ldmrpc.h"

struct feeds;

/* Room for n feeds, shared with processes forked later. NULL: errno. */
struct feeds *feeds_new(size_t n);
/* For the creator, after its children ended. */
void feeds_free(struct feeds *f);

/* Decides which part of cls may be sent to addr. true: all of it; the feed of this process is
 * entered, and those that it covers got SIGTERM (*ended: how many). false: cls was reduced (n = 0:
 * all is already being sent). If the table is full, all may be sent. */
bool feeds_enter(struct feeds *f, struct in_addr addr, struct ldm_class *cls, unsigned *ended);
/* When a feeding process is gone (by itself or by its parent). */
void feeds_leave(struct feeds *f, pid_t pid);

#endif
