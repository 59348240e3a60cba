/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes events as they happen, one file per process, in qlog's JSON text sequences
 * (draft-ietf-quic-qlog-main-schema). Each record takes one system call, so what was written
 * survives the program. A truncated record ends where the next one begins (0x1E). Programs without
 * a file pass NULL, which costs one comparison.
 */
#ifndef COMMON_QLOG_H
#define COMMON_QLOG_H

#include <stddef.h>

#define QLOG_TEXT 512u /* bytes of a text with its quotes and terminator; longer texts are cut */

struct qlog;

/* Creates DIR/PROGRAM.SECONDS.PID.sqlog. schema: the URI that defines the events. Returns NULL with
 * errno on failure. */
struct qlog *qlog_open(const char *dir, const char *program, const char *schema);
/* q may be NULL. */
void qlog_close(struct qlog *q);
/* Writes an event with the current time. fields: a printf() format for JSON members without their
 * braces. */
void qlog_event(struct qlog *q, const char *name, const char *fields, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns a text as a JSON string with quotes. Bytes beyond ASCII become "?". */
const char *qlog_text(char out[QLOG_TEXT], const char *text);

#endif
