/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports what receivers did on standard error: a few lines per host and kind, and how many more.
 */
#ifndef FMTP_TOOLS_NOTICES_H
#define FMTP_TOOLS_NOTICES_H

#include "fmtp.h"

/* For fmtp_server_config.notice. */
void notices_tell(void *ctx, const struct sockaddr *peer, enum fmtp_notice what);
/* For fmtp_server_config.laggard. */
void notices_laggard(void *ctx, const struct sockaddr *peer, const struct fmtp_held *held);
/* Reports how many lines were suppressed; call it at the end. */
void notices_end(void);

#endif
