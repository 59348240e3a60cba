/* SPDX-License-Identifier: Apache-2.0
 *
 * AES-256-GMAC (NIST SP 800-38D: GCM without plaintext) of successive datagrams with one key. Uses
 * Intel's Multi-Buffer Crypto library if it was available at build time and the processor has AES
 * and carry-less multiplication (a quarter of OpenSSL's time per datagram, because nothing is
 * looked up for each), otherwise OpenSSL. The results are identical.
 */
#ifndef FMTP_GMAC_H
#define FMTP_GMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { GMAC_KEY_LEN = 32, GMAC_NONCE_LEN = 12, GMAC_TAG_LEN = 16 };

enum gmac_engine { GMAC_FASTEST, GMAC_OPENSSL, GMAC_IPSEC_MB };

struct gmac;

/* Returns NULL without memory, or if the engine is not available here. */
struct gmac *gmac_new(enum gmac_engine engine, const uint8_t key[GMAC_KEY_LEN]);
/* Frees it and overwrites the key. g may be NULL. */
void gmac_free(struct gmac *g);
/* Returns the engine in use: never GMAC_FASTEST. */
enum gmac_engine gmac_engine_of(const struct gmac *g);
/* Computes the tag of the concatenated parts (less than 2^31 bytes each) under the nonce. */
bool gmac_tag(struct gmac *g, const struct iovec *parts, int nparts,
              const uint8_t nonce[GMAC_NONCE_LEN], uint8_t tag[GMAC_TAG_LEN]);

#endif
