/* SPDX-License-Identifier: Apache-2.0
 *
 * POSIX extended regular expressions (ERE) that may come from the network: compiled to PCRE2, with
 * bounds on the memory and on the work of each match. The C library's regcomp and regexec have no
 * bounds: nested repetitions take exponential time.
 *
 * Differences from POSIX: it refuses back references and backslash before a letter, digit or one of
 * <>`' (GNU extensions), "(?", "(*", one repetition directly after another, a repetition of
 * nothing, "{" that does not begin {m}, {m,} or {m,n}, counts (or products of nested counts) above
 * ERE_REPEAT_MAX, and collating elements [.x.] and [=x=]. It works on bytes, not characters: no
 * locale, no UTF-8.
 */
#ifndef LDM_ERE_H
#define LDM_ERE_H

#include <stdbool.h>
#include <stddef.h>

#define ERE_BYTES_MAX 255u /* of a pattern: LDM's string<255> */
#define ERE_REPEAT_MAX 1024u
/* PCRE2's limits: backtracking points from one start in the text, their nesting, memory. */
#define ERE_MATCH_LIMIT 50000u
#define ERE_DEPTH_LIMIT 4000u
#define ERE_HEAP_KIB 256u

struct ere;
enum ere_result { ERE_NO, ERE_YES, ERE_LIMIT };

/* Returns 0 and *re; or -1, *re NULL and a reason (quoting the pattern) in err: malformed or too
 * complex. */
int ere_compile(struct ere **re, const char *pattern, bool ignore_case, char *err,
                size_t err_bytes);
/* Does the same for an expression whose parenthesized groups are needed; case-sensitive. */
int ere_compile_groups(struct ere **re, const char *pattern, char *err, size_t err_bytes);
/* re may be NULL. */
void ere_free(struct ere *re);
/* Searches for a match anywhere in text. ERE_LIMIT: not decided within the limits; callers treat it
 * as "no" if that is the safe answer. Logs this the first time it happens for an expression. */
enum ere_result ere_match(struct ere *re, const char *text);
/* Returns how many groups a match of an expression from ere_compile_groups() has (else 0). */
unsigned ere_groups(const struct ere *re);
/* Part of a text; at is NULL for a group that did not take part in the match. */
struct ere_span {
    const char *at;
    size_t bytes;
};
/* Works like ere_match(). If YES, spans[0] is the whole match and spans[1..] its groups, at most n
 * (others are not set). If several match at one place, it takes the first alternative, not the
 * longest. */
enum ere_result ere_match_groups(struct ere *re, const char *text, struct ere_span *spans,
                                 unsigned n);
/* Returns how often ere_match() returned ERE_LIMIT. */
unsigned long ere_limit_hits(const struct ere *re);

#endif
