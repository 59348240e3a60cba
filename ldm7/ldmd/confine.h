/* SPDX-License-Identifier: Apache-2.0
 *
 * Which sandbox (sandbox.h) each of ldmd's processes gets. The top process, which reads only the
 * first 44 bytes of a peer's connection, and programs of EXEC entries have none.
 */
#ifndef LDMD_CONFINE_H
#define LDMD_CONFINE_H

#include "process.h"

/* Return 0, or -1 (logged): the process must end. Call these before the first byte from a peer;
 * with `SET ldmd.sandbox off` or --no-sandbox they do nothing. */
int confine_connection(const struct options *opt);
int confine_mldm(const struct options *opt, const struct conf_multicast *entry);
int confine_down6(const struct options *opt);
int confine_down7(const struct options *opt);
/* Logs once what this kernel supports. */
void confine_report(const struct options *opt);

#endif
