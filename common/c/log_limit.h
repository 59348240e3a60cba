/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits the log lines that a peer can cause, per peer and kind: the first few of a window may be
 * written, the others are counted, and one line says how many when the window is over. This module
 * writes nothing itself. The table has a fixed size and counts what finds no room together, so that
 * many addresses cannot fill a log either. Processes forked later share the counts.
 */
#ifndef COMMON_LOG_LIMIT_H
#define COMMON_LOG_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_LIMIT_PEER 64u /* bytes of a peer's name with its terminator; longer names are cut */
#define LOG_LIMIT_KIND 96u
/* The name of the entry shared by all peers for which there is no room. */
#define LOG_LIMIT_OTHERS "other peers"

struct log_limit;

/* A count of lines that were suppressed. */
struct log_limit_rest {
    char peer[LOG_LIMIT_PEER], kind[LOG_LIMIT_KIND];
    uint64_t lines;
};

/* Makes room for `entries` pairs of peer and kind. Returns NULL with errno on failure. */
struct log_limit *log_limit_new(size_t entries, uint64_t window_ns);
/* l may be NULL. */
void log_limit_free(struct log_limit *l);
/* Returns whether a line of this kind about this peer may be written now, at most `lines` per
 * window. *before: how many lines the previous window suppressed (0: none, or that window is not
 * over). */
bool log_limit_take(struct log_limit *l, const char *peer, const char *kind, unsigned lines,
                    uint64_t now_ns, uint64_t *before);
/* Takes one count of suppressed lines from a window that is over (with `all`: from any window).
 * Returns false if there is none. */
bool log_limit_rest(struct log_limit *l, uint64_t now_ns, bool all, struct log_limit_rest *out);

#endif
