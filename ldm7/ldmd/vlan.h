/* SPDX-License-Identifier: Apache-2.0
 *
 * The subscriber's end of the path: the address that FMTP uses here, and vlanutil, which makes the
 * VLAN's interface with the address that the upstream assigned (DRFSM21 2.2.2 and 2.2.3).
 */
#ifndef LDMD_VLAN_H
#define LDMD_VLAN_H

#include "conf.h"
#include "ldmrpc.h"

/* Returns whether ldmd must make the entry's interface: the entry names an interface and a VLAN. */
bool vlan_is_ours(const struct conf_receive *rcv);
/* Gives the name of the entry's interface with its VLAN, such as eth1.1101. */
void vlan_interface(const struct conf_receive *rcv, char *out, size_t out_bytes);
/* Makes it (again), with a route to the server, and logs that. tags: this host tags frames, not the
 * switch's port. Returns -1; vlanutil has logged why. */
int vlan_create(const char *vlanutil, bool tags, const char *interface,
                const struct ldm7_reply *reply, struct in_addr server);
/* Removes it and logs that; vlanutil logs a failure. */
void vlan_destroy(const char *vlanutil, const char *interface);
/* Returns the first IPv4 address of an interface; false: it has none. */
bool vlan_address_of(const char *interface, struct in_addr *out);

/* Runs a program and waits for its end. Returns -1 after logging one line, with what the program
 * complained about. */
int vlan_execute(char *const argv[]);
/* Starts a process that runs vlanutil for this one, which cannot once it is in its sandbox
 * (confine.h); it ends with this one. Returns 0, or -1 (logged). */
int vlan_start_helper(const struct conf_receive *rcv, const char *vlanutil);

#endif
