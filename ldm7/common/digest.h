/* SPDX-License-Identifier: Apache-2.0
 *
 * MD5 of product data (the signature LDM gives products), by libcrypto.
 */
#ifndef LDM_DIGEST_H
#define LDM_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

#include "queue/pq.h"

/* All at once. false: libcrypto has no MD5 here (FIPS mode) or no memory. */
bool digest_of(const void *data, size_t bytes, struct pq_signature *out);

/* In pieces; one object serves any number of digests, one after another. */
struct digest;
/* NULL: no memory. */
struct digest *digest_new(void);
/* Begins a digest, also after one that was not ended. false: libcrypto has no MD5 here. */
bool digest_begin(struct digest *d);
/* More bytes. false: libcrypto failed. */
bool digest_add(struct digest *d, const void *data, size_t bytes);
/* The digest of all that was added. false: libcrypto failed. */
bool digest_end(struct digest *d, struct pq_signature *out);
/* d may be NULL. */
void digest_free(struct digest *d);

#endif
