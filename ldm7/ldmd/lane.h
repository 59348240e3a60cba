/* SPDX-License-Identifier: Apache-2.0
 *
 * The publisher's end of the path (DRFSM21 2.2.3): vlanutil makes the interface of a MULTICAST
 * entry's VLAN with its address, and HTB with one queue for multicast and one for the rest (MPUP16
 * V-B).
 *
 * A separate process makes both, and removes them when mldm ends, even if mldm is killed. The
 * interfaces are marked: what is left when all are killed is removed at the next start.
 */
#ifndef LDMD_LANE_H
#define LDMD_LANE_H

#include "process.h"

/* Returns whether ldmd makes the entry's interface (ldm7.nic). */
bool lane_is_ours(const struct conf_multicast *m);
/* Call this before entering the sandbox. Returns 0 when everything is made, or -1 (logged). */
int lane_make(const struct options *opt, const struct conf_multicast *m);
/* Returns when all interfaces are removed. Without lane_make() it does nothing. */
void lane_remove(void);
/* Call this when the server starts: removes what an earlier server with the same queue left. */
void lane_sweep(const struct options *opt);

#endif
