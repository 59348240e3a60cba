/* SPDX-License-Identifier: Apache-2.0
 *
 * MD5 of product data (LDM's product signature), by libcrypto.
 */
#ifndef LDM_DIGEST_H
#define LDM_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

#include "queue/pq.h"

/* Digests everything at once. Returns false if libcrypto has no MD5 (FIPS mode), or without
 * memory. */
bool digest_of(const void *data, size_t bytes, struct pq_signature *out);

/* Digests in pieces; one object serves any number of digests, one after another. */
struct digest;
/* Returns NULL without memory. */
struct digest *digest_new(void);
/* Begins a digest, discarding an unfinished one. Returns false if libcrypto has no MD5. */
bool digest_begin(struct digest *d);
/* Adds bytes. Returns false if libcrypto failed. */
bool digest_add(struct digest *d, const void *data, size_t bytes);
/* Returns the digest of everything added. Returns false if libcrypto failed. */
bool digest_end(struct digest *d, struct pq_signature *out);
/* d may be NULL. */
void digest_free(struct digest *d);

#endif
