/* SPDX-License-Identifier: Apache-2.0
 *
 * Which walls (sandbox.h) each of ldmd's processes gets. The top process, which parses nothing of
 * peers but the first 44 bytes of a connection, and programs of EXEC entries have none.
 */
#ifndef LDMD_CONFINE_H
#define LDMD_CONFINE_H

#include "process.h"

/* 0, or -1 (logged): the process must end. Before the first byte of a peer; with `SET ldmd.sandbox
 * off` or --no-sandbox these do nothing. */
int confine_connection(const struct options *opt);
int confine_mldm(const struct options *opt, const struct conf_multicast *entry);
int confine_down6(const struct options *opt);
int confine_down7(const struct options *opt);
/* Logs once which of them this kernel has. */
void confine_report(const struct options *opt);

#endif
