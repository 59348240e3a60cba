/* SPDX-License-Identifier: Apache-2.0
 *
 * What ldmd may do after it has bound its port. With --user it becomes that user and keeps two
 * capabilities in reserve: CAP_NET_ADMIN (receive buffer of FMTP beyond the system's limit; the
 * interface of a VLAN, by vlanutil) and CAP_NET_BIND_SERVICE (a multicast group's port below 1024).
 * Only the processes of MULTICAST and RECEIVE entries use them; those that serve connections, and
 * programs of EXEC entries, have none.
 */
#ifndef LDMD_PRIVILEGES_H
#define LDMD_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>

/* "root" stays root, with all privileges. Returns -1; why holds the reason, for the user. */
int privileges_drop(const char *user, char *why, size_t why_bytes);
/* After that: uses the reserve in this process (and, if inherit, in programs that it executes).
 * Without privileges_drop() this and the next function do nothing. */
void privileges_use_reserve(bool inherit);
/* Gives up privileges permanently. forever: executed programs cannot gain any either. */
void privileges_renounce(bool forever);

#endif
