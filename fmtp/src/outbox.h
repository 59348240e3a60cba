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
    size_t limit; /* limit of len; at most four times as much is allocated */
};

/* Makes an empty queue of at most `limit` bytes. */
void fmtp_outbox_init(struct fmtp_outbox *o, size_t limit);
/* Frees the queue. */
void fmtp_outbox_free(struct fmtp_outbox *o);
/* Discards the content. */
void fmtp_outbox_clear(struct fmtp_outbox *o);
/* Queues head followed by body. Returns -1 at the limit or without memory; then nothing was
 * queued. */
int fmtp_outbox_put(struct fmtp_outbox *o, const void *head, size_t head_len, const void *body,
                    size_t body_len);
/* Removes the first bytes (at most len), which have been sent. */
void fmtp_outbox_sent(struct fmtp_outbox *o, size_t bytes);

#endif
