/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that apply to the configurations of servers and of clients.
 */
#ifndef FMTP_CHECK_H
#define FMTP_CHECK_H

#include "fmtp.h"

/* Checks layout, group, MAC level, and whether a key can be used with them. Returns -1 with
 * *err. */
int fmtp_check_session(enum fmtp_layout layout, const struct sockaddr_storage *group,
                       unsigned mac_level, bool has_key, struct tp_error *err);

#endif
