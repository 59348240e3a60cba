/* SPDX-License-Identifier: Apache-2.0
 *
 * Authenticates packets by a key that a group shares: EXT_AUTH (RFC 5651) with a group MAC (RFC
 * 6584 5), here the first 16 bytes of HMAC-SHA-256 over the whole datagram with the MAC's field
 * zeroed. Everyone who has the key can send. EXT_TIME (RFC 5651, SCT-High) carries the send time:
 * without it, an attacker could replay yesterday's session and replace today's files.
 */
#ifndef FCAST_AUTH_H
#define FCAST_AUTH_H

#include "lct.h"

enum { FCAST_MAC = 16, FCAST_AUTH_CONTENT = 2 + FCAST_MAC, FCAST_KEY_MAX = 64 };
enum { FCAST_TIME_CONTENT = 2 + 4 };

struct fcast_auth;

/* Returns NULL if out of memory. */
struct fcast_auth *fcast_auth_new(const uint8_t *key, size_t len);
/* a may be NULL. */
void fcast_auth_free(struct fcast_auth *a);
/* Writes the MAC into a datagram at `mac`, where its EXT_AUTH has zeroes. Returns false if the
 * library failed. */
bool fcast_auth_sign(struct fcast_auth *a, uint8_t *datagram, size_t len, uint8_t *mac);
/* Returns whether the datagram's MAC is valid; false if it has no EXT_AUTH. h: its header. */
bool fcast_auth_verify(struct fcast_auth *a, const uint8_t *datagram, size_t len,
                       const struct lct_header *h);

/* Writes the content of EXT_TIME: NTP seconds. */
void fcast_time_put(uint8_t out[FCAST_TIME_CONTENT], uint32_t ntp_s);
/* Computes how many seconds before ntp_s a datagram was sent; negative: after it. Returns false if
 * the datagram does not say. */
bool fcast_time_age(const struct lct_header *h, uint32_t ntp_s, int64_t *age_s);

#endif
