/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeds for tests over real sockets: a server and its clients on the loopback interface, served by
 * one loop. Product n of a feed has sizes[n % PRODUCTS] bytes of content.
 */
#ifndef FEEDS_KIT_H
#define FEEDS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "addresses.h"
#include "fmtp.h"

enum { PRODUCTS = 8, CLIENTS = 3, FEEDS = 3 };
#define OWN_IPV6 "fd07::1"

extern const uint32_t sizes[PRODUCTS];
extern uint8_t content[PRODUCTS][800001];

struct sink {
    struct fmtp_client *client;
    uint8_t *data[PRODUCTS];
    unsigned begun, ended, missed, wrong;
    bool lost;
    char why[256];
};

struct feed {
    struct fmtp_server_config cfg;
    struct fmtp_client_config rx;
    struct fmtp_server *server;
    struct sink sinks[CLIENTS];
    int nsinks;
    unsigned offered, released, all_done, first;
};

struct feed new_feed(bool v6);
void open_server(struct feed *f);
struct sink *open_client(struct feed *f);
/* Runs one turn of the caller's loop over everything that the feeds have. */
void turn(struct feed *feeds, int n, int timeout_ms);
void offer_next(struct feed *f);
void wait_connected(struct feed *feeds, int n);
/* Sends `products` on each feed, and returns when all are released. */
void transfer(struct feed *feeds, int n, unsigned products);
void check_all(struct feed *f, unsigned products);
void close_feed(struct feed *f);
/* Returns whether there is IPv6 multicast. The loopback interface has none; own_network() makes an
 * interface that has. */
bool has_ipv6(void);
/* Group setup: makes the content. */
int fill(void **state);
/* Enters a network namespace of this test; if that is impossible, the test runs where it is. */
void own_network(char **argv);

#endif
