/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines that a peer can cause: for each peer and each place in the source, a few per minute are
 * written; then "N more of these from ADDRESS" (log_limit.h).
 */
#ifndef LDM_LOG_PEER_H
#define LDM_LOG_PEER_H

#include <stdint.h>

#include "log.h"

#define LOG_PEER_LINES 5u   /* for lines that anyone can cause */
#define LOG_PEER_SERVED 30u /* for lines that only peers permitted by an entry can cause */
#define LOG_PEER_WINDOW_S 60u

/* From now on processes forked by this one share its counts. Returns 0, or -1 with errno: then each
 * process counts for itself. */
int log_peer_share(void);
/* Writes the counts of suppressed lines of windows that are over (with `all`: of any window). Call
 * it from time to time and at the end. If processes share counts, only the one that called
 * log_peer_share() writes. */
void log_peer_rest(bool all);

/* Writes one line about that peer, if it may be written. Use the macros below. */
void log_peer_msg(enum log_level level, const char *file, const char *func, int line,
                  unsigned lines, const char *peer, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));

#define log_peer_at(level, lines, peer, ...)                                                   \
    do {                                                                                       \
        if (log_enabled(level))                                                                \
            log_peer_msg((level), __FILE__, __func__, __LINE__, (lines), (peer), __VA_ARGS__); \
    } while (0)
#define log_peer_warn(peer, ...) log_peer_at(LOG_LVL_WARN, LOG_PEER_LINES, (peer), __VA_ARGS__)
#define log_peer_note(peer, ...) log_peer_at(LOG_LVL_NOTE, LOG_PEER_LINES, (peer), __VA_ARGS__)
#define log_peer_served(peer, ...) log_peer_at(LOG_LVL_NOTE, LOG_PEER_SERVED, (peer), __VA_ARGS__)

#endif
