/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the sandbox. Not for users of sandbox.h.
 */
#ifndef SANDBOX_IMPL_H
#define SANDBOX_IMPL_H

#include "sandbox.h"

/* Returns whether this kernel supports filters that answer with an error. */
bool sandbox_has_seccomp(void);
/* 0, or -1 and why. */
int sandbox_enter_seccomp(const struct sandbox *s, char *why, size_t why_bytes);
/* Returns the ABI version; 0: no Landlock. */
int sandbox_landlock_abi(void);
/* 0, or -1 and why. */
int sandbox_enter_landlock(const struct sandbox *s, int abi, char *why, size_t why_bytes);

#endif
