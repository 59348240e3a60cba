/* SPDX-License-Identifier: Apache-2.0
 *
 * Authentication of packets by a key that a group shares: EXT_AUTH (RFC 5651) with a group MAC
 * (RFC 6584 5), here the first 16 bytes of HMAC-SHA-256 over the whole datagram with the MAC's
 * place zero. Everyone who has the key can send. EXT_TIME (RFC 5651, SCT-High) says when: without
 * it, somebody could replay yesterday's session and replace today's files.
 */
#ifndef FCAST_AUTH_H
#define FCAST_AUTH_H

#include "lct.h"

enum { FCAST_MAC = 16, FCAST_AUTH_CONTENT = 2 + FCAST_MAC, FCAST_KEY_MAX = 64 };
enum { FCAST_TIME_CONTENT = 2 + 4 };

struct fcast_auth;

/* NULL: no memory. */
struct fcast_auth *fcast_auth_new(const uint8_t *key, size_t len);
/* a may be NULL. */
void fcast_auth_free(struct fcast_auth *a);
/* Puts the MAC into a datagram whose EXT_AUTH has zeroes; mac is its place there. false: the
 * library failed. */
bool fcast_auth_sign(struct fcast_auth *a, uint8_t *datagram, size_t len, uint8_t *mac);
/* True if the datagram's MAC is right. h: its header. False without EXT_AUTH. */
bool fcast_auth_verify(struct fcast_auth *a, const uint8_t *datagram, size_t len,
                       const struct lct_header *h);

/* The content of EXT_TIME: seconds of NTP. */
void fcast_time_put(uint8_t out[FCAST_TIME_CONTENT], uint32_t ntp_s);
/* By how many seconds a datagram was sent before ntp_s; negative: after it. false: it does not
 * say. */
bool fcast_time_age(const struct lct_header *h, uint32_t ntp_s, int64_t *age_s);

#endif
