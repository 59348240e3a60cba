/* SPDX-License-Identifier: Apache-2.0
 *
 * The walls around a command-line program (sandbox.h), entered before the first byte of a peer.
 */
#ifndef TRANSPORT_TOOL_CONFINE_H
#define TRANSPORT_TOOL_CONFINE_H

#include "sandbox.h"

/* The directory of a path, for sandbox_path; the caller frees it after confine(). */
char *directory_of(const char *path);
/* Enters and says so on standard error; off: says only that. Ends the program with 1 if it
 * cannot. */
void confine(const struct sandbox *s, bool off);

#endif
