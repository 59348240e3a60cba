/* SPDX-License-Identifier: Apache-2.0
 *
 * The subscriber's end of the path: the address that FMTP uses here, and vlanutil, which makes the
 * VLAN's interface with the address that the upstream assigned (DRFSM21 2.2.2 and 2.2.3).
 */
#ifndef LDMD_VLAN_H
#define LDMD_VLAN_H

#include "conf.h"
#include "ldmrpc.h"

/* True if ldmd must make the entry's interface: the entry names an interface and a VLAN. */
bool vlan_is_ours(const struct conf_receive *rcv);
/* Name of the entry's interface with its VLAN, such as eth1.1101. */
void vlan_interface(const struct conf_receive *rcv, char *out, size_t out_bytes);
/* Makes it (again), with a route to the server, and logs that. tags: this host tags, not the
 * switch's port. -1: logged by vlanutil. */
int vlan_create(const char *vlanutil, bool tags, const char *interface,
                const struct ldm7_reply *reply, struct in_addr server);
/* Removes it and logs that; a failure is logged by vlanutil. */
void vlan_destroy(const char *vlanutil, const char *interface);
/* The first IPv4 address of an interface. false: it has none. */
bool vlan_address_of(const char *interface, struct in_addr *out);

/* Runs a program, which is at its end when this returns. -1: logged in one line, with what it
 * complained of. */
int vlan_execute(char *const argv[]);
/* Starts a process that runs vlanutil for this one, which cannot once it is behind its walls
 * (confine.h); it ends with this one. 0, or -1 (logged). */
int vlan_start_helper(const struct conf_receive *rcv, const char *vlanutil);

#endif
