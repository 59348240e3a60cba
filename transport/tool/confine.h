/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandbox of a command-line program (sandbox.h), entered before the first byte from a peer.
 */
#ifndef TRANSPORT_TOOL_CONFINE_H
#define TRANSPORT_TOOL_CONFINE_H

#include "sandbox.h"

/* Returns the directory of a path, for sandbox_path(); the caller frees it after confine(). */
char *directory_of(const char *path);
/* Enters the sandbox and says so on standard error; off: only says that it is off. Ends the program
 * with exit code 1 on failure. */
void confine(const struct sandbox *s, bool off);

#endif
