/* SPDX-License-Identifier: Apache-2.0
 *
 * Which feeds are being sent to which address: a table in memory that the server's children share.
 * An address gets a product at most once at a time (LDM-6.15.0 enable-anti-DOS): a new feed ends
 * older feeds to the same address that it covers (their connections may be dead), and is reduced by
 * those that it does not cover.
 */
#ifndef LDMD_FEEDS_H
#define LDMD_FEEDS_H

#include <sys/types.h>

#include "ldmrpc.h"

struct feeds;

/* Makes room for n feeds, shared with processes forked later. Returns NULL with errno on
 * failure. */
struct feeds *feeds_new(size_t n);
/* For the creator, after its children have ended. */
void feeds_free(struct feeds *f);

/* Decides which part of cls may be sent to addr. Returns true if all of it: the feed of this
 * process is entered, and those that it covers got SIGTERM (*ended: how many). Returns false if cls
 * was reduced (n = 0: all of it is already being sent). If the table is full, everything may be
 * sent. */
bool feeds_enter(struct feeds *f, struct in_addr addr, struct ldm_class *cls, unsigned *ended);
/* Call this when a feeding process is gone (from the process itself or its parent). */
void feeds_leave(struct feeds *f, pid_t pid);

#endif
