/* SPDX-License-Identifier: Apache-2.0
 *
 * What pqact does with a product: finds the entries that match and carries their actions out.
 */
#ifndef PQACT_ACT_H
#define PQACT_ACT_H

#include "actconf.h"
#include "outputs.h"

struct act_stats {
    uint64_t products, matched, actions; /* seen; with an entry that is not NOOP; carried out */
    uint64_t refused, failed; /* by a path or argument from the identifier; for other reasons */
};

struct actor {
    struct actconf *conf;
    struct outputs *outputs;
    struct datadir *dir;
    struct commands *commands;
    struct act_stats stats;
    struct ere_span *spans; /* conf->spans of them */
};

/* Another configuration; the one before is the caller's again. */
void actor_use(struct actor *a, struct actconf *conf);
/* The caller keeps the configuration. */
void actor_free(struct actor *a);
/* Entries are tried in the order of the file; ^_ELSE_$ counts when no other entry matched. What
 * fails is logged and counted, and the next action runs. */
void actor_product(struct actor *a, const struct pq_info *info, const uint8_t *data);

#define ACT_METADATA_MAX (4 + 16 + 4 + 8 + 4 + 4 + 4 + 4 + PQ_IDENT_MAX + 4 + PQ_ORIGIN_MAX)
/* -metadata (LDM-6.15.0 pqact), in the byte order of this machine. data_bytes: what follows
 * it. */
size_t act_metadata(const struct pq_info *info, uint32_t data_bytes, uint8_t out[ACT_METADATA_MAX]);
/* -strip: without control characters, except newlines. Returns the bytes of out, which may be
 * `data`. */
size_t act_strip(const uint8_t *data, size_t bytes, uint8_t *out);

#endif
