/* SPDX-License-Identifier: Apache-2.0
 *
 * Product classes: tests whether a product is in a class (LDM-6.15.0).
 */
#ifndef LDMD_MATCH_H
#define LDMD_MATCH_H

#include "common/ere.h"
#include "common/product_line.h"
#include "ldmrpc.h"

/* A compiled prod_class. Specs of feedtype 0 (such as SIG=...) match nothing. */
struct matcher {
    struct ldm_class cls;
    uint32_t ncompiled;
    struct ere *re[LDM_MAX_SPECS];
    bool any[LDM_MAX_SPECS]; /* the pattern is ".*": no need to run the expression */
    bool ignore_from;
};
/* Returns 0, or -1 if a pattern is invalid (reply BADPATTERN); err quotes it. */
int matcher_init(struct matcher *m, const struct ldm_class *cls, char *err, size_t err_bytes);
/* Frees the patterns. */
void matcher_free(struct matcher *m);
/* Returns whether the product is in the class. */
bool matcher_wants(const struct matcher *m, const struct pq_info *info);

/* Finds and removes the specs {NONE, "SIG=<32 hex digits>"}; returns whether there was a valid
 * one. */
bool class_take_signature(struct ldm_class *cls, struct pq_signature *sig);
/* Adds such a spec. Returns false if the class is full. */
bool class_add_signature(struct ldm_class *cls, const struct pq_signature *sig);
/* Formats "<from> <to> {{FEED, "ERE"}, ...}"; returns out. */
char *class_format(const struct ldm_class *cls, char *out, size_t out_bytes);

#endif
