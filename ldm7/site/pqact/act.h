/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the entries that match a product and carries out their actions.
 */
#ifndef PQACT_ACT_H
#define PQACT_ACT_H

#include "actconf.h"
#include "outputs.h"

struct act_stats {
    uint64_t products, matched,
        actions; /* seen; matched by an entry other than NOOP; carried out */
    uint64_t refused,
        failed; /* because of a path or argument from the identifier; for other reasons */
};

struct actor {
    struct actconf *conf;
    struct outputs *outputs;
    struct datadir *dir;
    struct commands *commands;
    struct act_stats stats;
    struct ere_span *spans; /* conf->spans elements */
};

/* Switches to another configuration; the caller owns the previous one again. */
void actor_use(struct actor *a, struct actconf *conf);
/* The caller keeps the configuration. */
void actor_free(struct actor *a);
/* Tries entries in the order of the file; ^_ELSE_$ applies when no other entry has matched. A
 * failure is logged and counted, and the next action runs. */
void actor_product(struct actor *a, const struct pq_info *info, const uint8_t *data);

#define ACT_METADATA_MAX (4 + 16 + 4 + 8 + 4 + 4 + 4 + 4 + PQ_IDENT_MAX + 4 + PQ_ORIGIN_MAX)
/* Writes -metadata (LDM-6.15.0 pqact), in this machine's byte order. data_bytes: how many bytes
 * follow it. */
size_t act_metadata(const struct pq_info *info, uint32_t data_bytes, uint8_t out[ACT_METADATA_MAX]);
/* Implements -strip: copies without control characters, except newlines. Returns the bytes in out,
 * which may be `data`. */
size_t act_strip(const uint8_t *data, size_t bytes, uint8_t *out);

#endif
