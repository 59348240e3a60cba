/* SPDX-License-Identifier: Apache-2.0
 *
 * A sending core for tests of its repairs and streams: bytes in, bytes out. Blocks of 100 bytes in
 * groups of at most 10; a datagram of a block counts 12+100+28 = 140 bytes, at 1.12 Mbit/s 1 ms.
 * Making a symbol of 10 blocks is reckoned as 250 ns, next to nothing. Round trips take 8 ms, so
 * requests are merged for 2 ms.
 */
#ifndef SENDER_KIT_H
#define SENDER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "sender.h"

#define MS UINT64_C(1000000)
enum { BLOCK = 100 };

extern int nreleased;
extern uint32_t latest;        /* index of the product offered last */
extern uint8_t product[30000]; /* the bytes of all products */
extern const struct fmtp_sender_config common;

struct fmtp_sender *make(const struct fmtp_sender_config *cfg);
int peer(struct fmtp_sender *s, bool extended);
void offer(struct fmtp_sender *s, size_t size);
/* Takes and sends one datagram; false: there is none. */
bool next(struct fmtp_sender *s, uint64_t now_ns, struct fmtp_header *h, uint8_t *payload);
/* Sends all there is; returns how many datagrams, *extra of them PARITY or REPAIR. */
unsigned drain(struct fmtp_sender *s, uint64_t now_ns, unsigned *extra);
/* The next datagram must be this one; there must be none. */
void expect(struct fmtp_sender *s, uint64_t now_ns, uint16_t flags, uint32_t seqnum);
void expect_none(struct fmtp_sender *s, uint64_t now_ns);
/* A message from a peer: of a header only; a request for blocks of a group of k, of one of 10 of
 * the latest product as bits. What the core says to it: 0 or -1. */
int put(struct fmtp_sender *s, int p, uint16_t flags, uint32_t index, uint32_t seq, uint16_t len);
int ask_k(struct fmtp_sender *s, int p, uint32_t index, uint32_t group, unsigned k,
          struct fmtp_repair_req req, const void *bits, uint64_t now_ns);
int ask(struct fmtp_sender *s, int p, uint32_t group, uint8_t high, uint8_t round, uint16_t need,
        uint16_t lost, uint64_t now_ns);
/* Multicasts a product of 300 blocks of which nothing is lost: the sender learns that loss is rare,
 * so it reckons with none of its repairs. */
void calm(struct fmtp_sender *s);
/* The seqnum of a parity symbol. */
uint32_t parity(unsigned group, unsigned number, unsigned end);
/* Takes what goes to a peer now. */
size_t stream(struct fmtp_sender *s, int p, uint8_t *bytes, size_t most, uint64_t now_ns);

#endif
