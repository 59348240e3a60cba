/* SPDX-License-Identifier: Apache-2.0
 *
 * Which host has how many of the server's connections. An IPv6 host is its /64, because it has as
 * many addresses there as it likes; the hosts of a /24 or /48 form a network. If places are scarce,
 * the host or else the network that has the most gives one up, so that an attacker with many
 * connections or many addresses gets no more than its share.
 */
#ifndef FMTP_HOSTS_H
#define FMTP_HOSTS_H

#include <sys/queue.h>

#include "net/address.h"

enum fmtp_use { FMTP_USE_HANDSHAKE, FMTP_USE_RECEIVER, FMTP_USES };

/* A host, or a network. */
struct fmtp_host {
    TAILQ_ENTRY(fmtp_host) link;
    struct fmtp_host *net; /* its network; NULL: this is a network itself */
    uint8_t key[9];        /* address family and the significant part of the address */
    uint64_t id;           /* hash of the key */
    size_t count[FMTP_USES];
    uint64_t exchanges_ns; /* its key exchanges are used up until this time */
};
TAILQ_HEAD(fmtp_host_list, fmtp_host);

struct fmtp_hosts {
    struct fmtp_host_list hosts, nets; /* most recently used first */
    size_t nhosts, nnets;
};

void fmtp_hosts_init(struct fmtp_hosts *h);
/* Frees all entries. */
void fmtp_hosts_free(struct fmtp_hosts *h);
/* Returns the host of that address, and makes it if necessary. It stays while it has a connection.
 * NULL: no memory. */
struct fmtp_host *fmtp_hosts_of(struct fmtp_hosts *h, const struct sockaddr_storage *address);
/* Counts one connection more (change 1) or less (-1) of that use, for the host and its network. */
void fmtp_host_count(struct fmtp_host *h, enum fmtp_use use, int change);
/* Returns the entry with the most connections of that use, or NULL. */
struct fmtp_host *fmtp_hosts_heaviest(const struct fmtp_host_list *list, enum fmtp_use use);
/* Takes one of the host's permitted key exchanges: `burst` at once, then FMTP_EXCHANGES_PER_S.
 * Returns false if it has used them up. */
bool fmtp_host_exchange(struct fmtp_host *h, unsigned burst, uint64_t now_ns);

#define FMTP_EXCHANGES_PER_S 16u

#endif
