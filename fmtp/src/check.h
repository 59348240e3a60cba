/* SPDX-License-Identifier: Apache-2.0
 *
 * What the configurations of servers and of clients must both say rightly.
 */
#ifndef FMTP_CHECK_H
#define FMTP_CHECK_H

#include "fmtp.h"

/* Layout, group, MAC level, and whether a key can be used with them. -1 with *err. */
int fmtp_check_session(enum fmtp_layout layout, const struct sockaddr_storage *group,
                       unsigned mac_level, bool has_key, struct tp_error *err);

#endif
