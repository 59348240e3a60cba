/* SPDX-License-Identifier: Apache-2.0
 *
 * The walls around fmtp-send and fmtp-recv (sandbox.h), entered before the first byte of a peer.
 */
#ifndef FMTP_TOOLS_CONFINE_H
#define FMTP_TOOLS_CONFINE_H

#include <netinet/in.h>

#include "sandbox.h"

/* The directory of a path, for sandbox_path; the caller frees it after confine(). */
char *directory_of(const char *path);
/* In host byte order. */
uint16_t port_of(const struct sockaddr_storage *address);
/* Enters and says so on standard error; off: says only that. Ends the program with 1 if it
 * cannot. */
void confine(const struct sandbox *s, bool off);

#endif
