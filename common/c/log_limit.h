/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines that a peer can cause, limited per peer and kind: the first few of a window may be
 * written, the others are counted, and when the window is over one line says how many there were.
 * Nothing is written here. The table has a fixed size; what finds no room in it is counted
 * together, so that many addresses fill no log either. Processes forked later share the counts.
 */
#ifndef COMMON_LOG_LIMIT_H
#define COMMON_LOG_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_LIMIT_PEER 64u /* bytes of a peer's name, the end included; longer ones are cut */
#define LOG_LIMIT_KIND 96u
#define LOG_LIMIT_OTHERS "other peers" /* stands for all that found no room */

struct log_limit;

/* Lines that were not written. */
struct log_limit_rest {
    char peer[LOG_LIMIT_PEER], kind[LOG_LIMIT_KIND];
    uint64_t lines;
};

/* Room for `entries` peers and kinds. NULL: errno. */
struct log_limit *log_limit_new(size_t entries, uint64_t window_ns);
/* l may be NULL. */
void log_limit_free(struct log_limit *l);
/* True if a line of this kind about this peer may be written now, of `lines` per window. *before:
 * how many lines of the previous window were left out (0: none, or that window is not over). */
bool log_limit_take(struct log_limit *l, const char *peer, const char *kind, unsigned lines,
                    uint64_t now_ns, uint64_t *before);
/* Takes out the lines of a window that is over (with `all`: of any window) and that were not
 * written. false: there are none. */
bool log_limit_rest(struct log_limit *l, uint64_t now_ns, bool all, struct log_limit_rest *out);

#endif
