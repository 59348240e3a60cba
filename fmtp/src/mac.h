/* SPDX-License-Identifier: Apache-2.0
 *
 * Message authentication of multicast datagrams (LAYOUT_2021): 0, 32 or 64 bytes after the payload,
 * computed over header and payload exactly as they are on the wire and not counted in payloadlen.
 * Level 0: none. Level 1: HMAC-SHA256; every receiver gets the same 64 random bytes as key. Level
 * 2: an Ed25519 signature; receivers get the public key, so no receiver can pose as the sender.
 * The stream of a connection carries no MACs.
 */
#ifndef FMTP_MAC_H
#define FMTP_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define FMTP_MAC_MAX 64u      /* the longest MAC */
#define FMTP_MAC_KEY_MAX 128u /* room for the longest key */

struct fmtp_mac;

/* Sender: makes a fresh key of the level (0, 1, 2). NULL on failure. */
struct fmtp_mac *fmtp_mac_new_signer(unsigned level);
/* Receiver: the key of the sender, as the key exchange brought it; its form tells the level. NULL
 * if it is no key of any level. */
struct fmtp_mac *fmtp_mac_new_verifier(const uint8_t *key, size_t len);
/* Frees it; the key is overwritten. m may be NULL. */
void fmtp_mac_free(struct fmtp_mac *m);

/* 0, 1 or 2. */
unsigned fmtp_mac_level(const struct fmtp_mac *m);
size_t fmtp_mac_len(const struct fmtp_mac *m); /* 0, 32 or 64 */
/* Bytes of the MACs of a level: 0, 32 or 64. */
size_t fmtp_mac_len_of(unsigned level);
/* What the receivers are told. */
const uint8_t *fmtp_mac_key(const struct fmtp_mac *m, size_t *len);
/* Could these bytes be the key of some level, by their length? */
bool fmtp_mac_is_key_len(size_t len);

/* The MAC of the concatenated parts (at most 65504 bytes) to out[fmtp_mac_len()]. -1 on failure. */
int fmtp_mac_sign(struct fmtp_mac *m, const struct iovec *parts, int nparts, uint8_t *out);
/* False: forged or damaged. */
bool fmtp_mac_verify(struct fmtp_mac *m, const struct iovec *parts, int nparts, const uint8_t *mac);

#endif
