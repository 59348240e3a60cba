/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes waiting for a stream: a queue that grows on demand up to a limit.
 */
#ifndef FMTP_OUTBOX_H
#define FMTP_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

struct fmtp_outbox {
    uint8_t *bytes; /* bytes[at..at+len) wait */
    size_t at, len, capacity;
    size_t limit; /* of len; at most four times as much is allocated */
};

/* An empty queue of at most `limit` bytes. */
void fmtp_outbox_init(struct fmtp_outbox *o, size_t limit);
/* Frees what waits. */
void fmtp_outbox_free(struct fmtp_outbox *o);
/* Forgets what waits. */
void fmtp_outbox_clear(struct fmtp_outbox *o);
/* head and body, one after the other; -1: at the limit or no memory, then nothing was queued. */
int fmtp_outbox_put(struct fmtp_outbox *o, const void *head, size_t head_len, const void *body,
                    size_t body_len);
/* The first bytes left (at most len). */
void fmtp_outbox_sent(struct fmtp_outbox *o, size_t bytes);

#endif
