/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines of the LDM7 format (docs/reference/contracts.md; DRFSM21 Fig. 5):
 *   YYYYMMDDThhmmss.ffffffZ prog[pid]   file.c:function:line   LEVEL message
 * One line is one write(2) on a descriptor opened for appending, so lines of several processes
 * (including children after fork) do not mix. Control characters of the message are written as
 * \xHH: text from the network cannot forge lines. No allocation, no lock.
 */
#ifndef LDM_LOG_H
#define LDM_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LVL_ERROR, LOG_LVL_WARN, LOG_LVL_NOTE, LOG_LVL_INFO, LOG_LVL_DEBUG };

/* A longer message is cut and ends in "...". */
#define LOG_LINE_MAX 4096

/* Call first in main(): copies the arguments and puts the copies into *argv, so that log_set_prog()
 * may overwrite the originals that `ps` shows. The name is argv[0]'s last component. Without this
 * call everything works except the name shown by `ps args`. */
void log_init(int argc, char ***argv);

/* "-" standard error (the default), "" syslog, else a file (created, appended to). Returns 0, or -1
 * with errno and the destination unchanged. */
int log_set_destination(const char *dest);
/* Returns the log's file; "" if it is not a file. */
const char *log_file(void);
/* Reopens the file (after rotation). Returns 0, or -1 with errno; the old one then stays in use. */
int log_reopen(void);
/* Makes standard error the log's file, for a program that this process is about to execute: its
 * complaints are kept. Does nothing if the log is not a file. */
void log_take_stderr(void);
/* The default is NOTE; -v means INFO, -x DEBUG. */
void log_set_level(enum log_level level);
/* Returns the current level. */
enum log_level log_get_level(void);
/* Returns whether messages of this level are written. */
bool log_enabled(enum log_level level);
/* Writes JSON lines instead: {"time","prog","pid","file","function","line","level","message"}. */
void log_set_json(bool json);
/* Takes "text" or "json" (--log-format); returns false for anything else. */
bool log_set_format(const char *name);
/* Sets the name of the process in log lines, in `ps -o comm` and as first word of `ps -o args`. */
void log_set_prog(const char *name);
/* Returns the current name. */
const char *log_prog(void);

/* Writes one line; cuts longer messages. Preserves errno. Use the macros below. */
void log_msg(enum log_level level, const char *file, const char *func, int line, const char *fmt,
             ...) __attribute__((format(printf, 5, 6)));

#define log_at(level, ...)                                               \
    do {                                                                 \
        if (log_enabled(level))                                          \
            log_msg((level), __FILE__, __func__, __LINE__, __VA_ARGS__); \
    } while (0)
#define log_error(...) log_at(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_LVL_WARN, __VA_ARGS__)
#define log_note(...) log_at(LOG_LVL_NOTE, __VA_ARGS__)
#define log_info(...) log_at(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LVL_DEBUG, __VA_ARGS__)

/* Copies text with control characters (and DEL) as \xHH; never splits an escape. Returns what it
 * would have written, like snprintf(). */
size_t log_escape(char *out, size_t out_bytes, const char *text);

#endif
