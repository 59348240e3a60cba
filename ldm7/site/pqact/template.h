/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of pqact.conf with substitutions (LDM-6.15.0 pqact.conf):
 *   \1..\9 \(12)     what a group of the ERE matched (empty if it took no part); \0 the whole match
 *   (\1:yyyy)        a part of the date with that day of the month (below): yyyy, yy, mm,
 *                    mmm (jan), dd, ddd (day of the year), hh
 *   %Y %m ...        strftime of the creation time (UTC); %% is a percent sign
 *   (seq)            the sequence number
 * A text is parsed once, when it is read; substituted text is never parsed again.
 *
 * A day of the month represents the latest date that is less than 36 hours after the creation time.
 */
#ifndef PQACT_TEMPLATE_H
#define PQACT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/ere.h"
#include "queue/pq.h"

#define TEMPLATE_GROUPS_MAX 99u

struct template;

/* groups: how many the ERE has. Returns NULL with a reason in err. */
struct template *template_compile(const char *text, unsigned groups, char *err, size_t err_bytes);
/* t may be NULL. */
void template_free(struct template *t);
/* Returns whether text from the identifier is substituted into it. */
bool template_has_groups(const struct template *t);
/* Returns whether it begins with text from the identifier. */
bool template_begins_with_group(const struct template *t);
/* spans: as from ere_match_groups(), nspans of them. Returns the bytes written (without the NUL),
 * or -1 and why: not a day of a month, or no room. */
long template_expand(const struct template *t, const struct pq_info *info,
                     const struct ere_span *spans, unsigned nspans, char *out, size_t out_bytes,
                     char *err, size_t err_bytes);

#endif
