/* SPDX-License-Identifier: Apache-2.0
 *
 * Pushes products to an LDM server: HIYA, then for each product HEREIS, or COMINGSOON and BLKDATA.
 */
#ifndef LDM_PUSH_H
#define LDM_PUSH_H

#include "client.h"
#include "match.h"

struct push {
    const char *host;
    uint16_t port;
    double timeout_s; /* for each answer */
    struct client c;  /* c.why says what failed */
    struct matcher accepted;
    struct ldm6_reply reply;
    uint32_t max_hereis;
    uint32_t code; /* in COMINGSOON's answer */
};

/* Connects and offers products of the feed. On false see c.why. c must have been initialized by
 * client_init(). */
bool push_begin(struct push *p, uint32_t feed);
/* Sends the product, or logs that it is not accepted or not wanted. Returns false if the connection
 * is over; otherwise nothing refers to the data any more. */
bool push_product(struct push *p, const struct pq_view *v);
/* Returns whether the server has taken everything. */
bool push_taken(struct push *p);
/* Call this after push_begin(), whatever it returned. */
void push_end(struct push *p);

#endif
