/* SPDX-License-Identifier: Apache-2.0
 *
 * Message authentication of multicast datagrams (LAYOUT_2021): bytes after the payload, computed
 * over header and payload exactly as they are on the wire and not counted in payloadlen.
 * Level 0: none. Level 1: every receiver gets the same random key, so any receiver can pose as the
 * sender; HMAC-SHA256 (key of 64 bytes, MAC of 32) as the originals, or between programs of
 * Downpour AES-256-GMAC (NIST SP 800-38D; key of 32 bytes; MAC: nonce of 12 bytes that the sender
 * counts up, tag of 16), which costs a fraction of it. Level 2: an Ed25519 signature; receivers get
 * the public key, so no receiver can pose as the sender. The stream of a connection carries no
 * MACs.
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

/* On the wire, in the key exchange between programs of Downpour. */
enum fmtp_mac_kind {
    FMTP_MAC_NONE,
    FMTP_MAC_HMAC,
    FMTP_MAC_ED25519,
    FMTP_MAC_GMAC,
    FMTP_MAC_KINDS
};

/* Sender: makes a fresh key of the level (0, 1: HMAC, 2). NULL on failure. */
struct fmtp_mac *fmtp_mac_new_signer(unsigned level);
/* The same of a kind. */
struct fmtp_mac *fmtp_mac_new_signer_of(enum fmtp_mac_kind kind);
/* Receiver: the key of the sender, as the key exchange brought it; its form shows the level. NULL
 * if it is not a key of any level. */
struct fmtp_mac *fmtp_mac_new_verifier(const uint8_t *key, size_t len);
/* The same with an explicit kind. */
struct fmtp_mac *fmtp_mac_new_verifier_of(enum fmtp_mac_kind kind, const uint8_t *key, size_t len);
/* Frees it; the key is overwritten. m may be NULL. */
void fmtp_mac_free(struct fmtp_mac *m);

/* 0, 1 or 2. */
unsigned fmtp_mac_level(const struct fmtp_mac *m);
enum fmtp_mac_kind fmtp_mac_kind(const struct fmtp_mac *m);
size_t fmtp_mac_len(const struct fmtp_mac *m); /* 0, 28, 32 or 64 */
/* Bytes of the keys of a kind. */
size_t fmtp_mac_key_len_of(enum fmtp_mac_kind kind);
/* What the receivers learn. */
const uint8_t *fmtp_mac_key(const struct fmtp_mac *m, size_t *len);
/* True if these bytes, by their length, could be the key of some level. */
bool fmtp_mac_is_key_len(size_t len);

/* The MAC of the concatenated parts (at most 65504 bytes) to out[fmtp_mac_len()]. -1 on failure. */
int fmtp_mac_sign(struct fmtp_mac *m, const struct iovec *parts, int nparts, uint8_t *out);
/* False: forged or damaged. */
bool fmtp_mac_verify(struct fmtp_mac *m, const struct iovec *parts, int nparts, const uint8_t *mac);

#endif
