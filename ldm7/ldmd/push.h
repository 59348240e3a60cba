/* SPDX-License-Identifier: Apache-2.0
 *
 * Products to an LDM server of our own accord: HIYA, then HEREIS, or COMINGSOON and BLKDATA, each.
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
    uint32_t code; /* of COMINGSOON's answer */
};

/* Connects and offers products of the feed. false: c.why. c must have been opened (client_init). */
bool push_begin(struct push *p, uint32_t feed);
/* Sends the product, or logs that it is not accepted or not wanted. false: the connection is over;
 * else nothing refers to the data any more. */
bool push_product(struct push *p, const struct pq_view *v);
/* The server has taken all. */
bool push_taken(struct push *p);
/* Call after push_begin, whatever it returned. */
void push_end(struct push *p);

#endif
