/* SPDX-License-Identifier: Apache-2.0
 *
 * Events as they happen, in one file per process: qlog's JSON text sequences
 * (draft-ietf-quic-qlog-main-schema). A record is a system call, so what was written
 * survives the program; a record that was cut short ends where the next one begins (0x1E).
 * Programs without a file pass NULL, which costs a comparison.
 */
#ifndef COMMON_QLOG_H
#define COMMON_QLOG_H

#include <stddef.h>

#define QLOG_TEXT 512u /* bytes of a text with its quotes and end; longer ones are cut */

struct qlog;

/* Makes DIR/PROGRAM.SECONDS.PID.sqlog. schema: the URI that defines the events. NULL: errno. */
struct qlog *qlog_open(const char *dir, const char *program, const char *schema);
/* q may be NULL. */
void qlog_close(struct qlog *q);
/* An event of now. fields: JSON members without their braces, as printf() has it. */
void qlog_event(struct qlog *q, const char *name, const char *fields, ...)
    __attribute__((format(printf, 3, 4)));
/* A text as JSON has it, in quotes. Bytes beyond ASCII become "?". */
const char *qlog_text(char out[QLOG_TEXT], const char *text);

#endif
