/* SPDX-License-Identifier: Apache-2.0
 *
 * Which host has how many of the server's connections. An IPv6 host is its /64, for it has as many
 * addresses there as it likes; hosts of a /24 or /48 are a network. Where places are scarce the
 * host, or else the network, that has most gives way, so that a stranger with many connections or
 * many addresses gets no more than its part.
 */
#ifndef FMTP_HOSTS_H
#define FMTP_HOSTS_H

#include <sys/queue.h>

#include "net/address.h"

enum fmtp_use { FMTP_USE_HANDSHAKE, FMTP_USE_RECEIVER, FMTP_USES };

/* A host, or a network. */
struct fmtp_host {
    TAILQ_ENTRY(fmtp_host) link;
    struct fmtp_host *net; /* NULL: it is one */
    uint8_t key[9];        /* address family and the part of the address that counts */
    uint64_t id;           /* the same as a number */
    size_t count[FMTP_USES];
    uint64_t exchanges_ns; /* up to then its key exchanges are used up */
};
TAILQ_HEAD(fmtp_host_list, fmtp_host);

struct fmtp_hosts {
    struct fmtp_host_list hosts, nets; /* those used last first */
    size_t nhosts, nnets;
};

void fmtp_hosts_init(struct fmtp_hosts *h);
/* Frees all. */
void fmtp_hosts_free(struct fmtp_hosts *h);
/* The host of that address, made if it is new: stays while it has a connection. NULL: no memory. */
struct fmtp_host *fmtp_hosts_of(struct fmtp_hosts *h, const struct sockaddr_storage *address);
/* One more connection (change 1) or one less (-1) of that use, for the host and its network. */
void fmtp_host_count(struct fmtp_host *h, enum fmtp_use use, int change);
/* The one that has most of that use, or NULL. */
struct fmtp_host *fmtp_hosts_heaviest(const struct fmtp_host_list *list, enum fmtp_use use);
/* Takes one key exchange of what the host may have: `burst` at once, then FMTP_EXCHANGES_PER_S.
 * false: it has had them. */
bool fmtp_host_exchange(struct fmtp_host *h, unsigned burst, uint64_t now_ns);

#define FMTP_EXCHANGES_PER_S 16u

#endif
