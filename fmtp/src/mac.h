/* SPDX-License-Identifier: Apache-2.0
 *
 * Message authentication of multicast datagrams (LAYOUT_2021): bytes after the payload, computed
 * over header and payload exactly as they are on the wire and not counted in payloadlen. Level 0:
 * none. Level 1: every receiver gets the same random key, so any receiver can pose as the sender;
 * HMAC-SHA256 (64-byte key, 32-byte MAC) as in the originals, or between programs of Downpour
 * AES-256-GMAC (NIST SP 800-38D; 32-byte key; the MAC is a 12-byte nonce that the sender
 * increments, and a 16-byte tag), which costs a fraction of it. Level 2: an Ed25519 signature;
 * receivers get the public key, so no receiver can pose as the sender. The stream of a connection
 * carries no MACs.
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

/* Wire values, in the key exchange between programs of Downpour. */
enum fmtp_mac_kind {
    FMTP_MAC_NONE,
    FMTP_MAC_HMAC,
    FMTP_MAC_ED25519,
    FMTP_MAC_GMAC,
    FMTP_MAC_KINDS
};

/* Sender: makes a fresh key of the level (0, 1: HMAC, 2). Returns NULL on failure. */
struct fmtp_mac *fmtp_mac_new_signer(unsigned level);
/* Does the same for a kind. */
struct fmtp_mac *fmtp_mac_new_signer_of(enum fmtp_mac_kind kind);
/* Receiver: takes the sender's key from the key exchange; its form shows the level. Returns NULL if
 * it is not a key of any level. */
struct fmtp_mac *fmtp_mac_new_verifier(const uint8_t *key, size_t len);
/* Does the same with an explicit kind. */
struct fmtp_mac *fmtp_mac_new_verifier_of(enum fmtp_mac_kind kind, const uint8_t *key, size_t len);
/* Frees it and overwrites the key. m may be NULL. */
void fmtp_mac_free(struct fmtp_mac *m);

/* Returns 0, 1 or 2. */
unsigned fmtp_mac_level(const struct fmtp_mac *m);
enum fmtp_mac_kind fmtp_mac_kind(const struct fmtp_mac *m);
size_t fmtp_mac_len(const struct fmtp_mac *m); /* 0, 28, 32 or 64 */
/* Returns the length of a key of this kind in bytes. */
size_t fmtp_mac_key_len_of(enum fmtp_mac_kind kind);
/* Returns the key that receivers get. */
const uint8_t *fmtp_mac_key(const struct fmtp_mac *m, size_t *len);
/* Returns whether a key of some level has this length. */
bool fmtp_mac_is_key_len(size_t len);

/* Computes the MAC of the concatenated parts (at most 65504 bytes) to out[fmtp_mac_len()]. Returns
 * -1 on failure. */
int fmtp_mac_sign(struct fmtp_mac *m, const struct iovec *parts, int nparts, uint8_t *out);
/* Returns false if the datagram is forged or damaged. */
bool fmtp_mac_verify(struct fmtp_mac *m, const struct iovec *parts, int nparts, const uint8_t *mac);

#endif
