/* SPDX-License-Identifier: Apache-2.0
 *
 * A sending core for tests of its repairs and streams: bytes in, bytes out. Blocks of 100 bytes in
 * groups of at most 10; a datagram with a block counts as 12+100+28 = 140 bytes, which takes 1 ms
 * at 1.12 Mbit/s. Making a symbol of 10 blocks counts as 250 ns, which is negligible. Round trips
 * take 8 ms, so requests are merged for 2 ms.
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
extern uint32_t latest;        /* index of the last product offered */
extern uint8_t product[30000]; /* the bytes of all products */
extern const struct fmtp_sender_config common;

struct fmtp_sender *make(const struct fmtp_sender_config *cfg);
int peer(struct fmtp_sender *s, bool extended);
void offer(struct fmtp_sender *s, size_t size);
/* Takes and sends one datagram; returns false if there is none. */
bool next(struct fmtp_sender *s, uint64_t now_ns, struct fmtp_header *h, uint8_t *payload);
/* Sends everything; returns how many datagrams, of which *extra are PARITY or REPAIR. */
unsigned drain(struct fmtp_sender *s, uint64_t now_ns, unsigned *extra);
/* Assert that this is the next datagram, or that there is none. */
void expect(struct fmtp_sender *s, uint64_t now_ns, uint16_t flags, uint32_t seqnum);
void expect_none(struct fmtp_sender *s, uint64_t now_ns);
/* Send a message from a peer: one that is only a header; a request for blocks of a group of k; a
 * request for blocks, given as bits, of a group of 10 of the latest product. Return the core's
 * answer: 0 or -1. */
int put(struct fmtp_sender *s, int p, uint16_t flags, uint32_t index, uint32_t seq, uint16_t len);
int ask_k(struct fmtp_sender *s, int p, uint32_t index, uint32_t group, unsigned k,
          struct fmtp_repair_req req, const void *bits, uint64_t now_ns);
int ask(struct fmtp_sender *s, int p, uint32_t group, uint8_t high, uint8_t round, uint16_t need,
        uint16_t lost, uint64_t now_ns);
/* Multicasts a product of 300 blocks without loss: the sender learns that loss is rare and expects
 * none among its repairs. */
void calm(struct fmtp_sender *s);
/* Returns the seqnum of a parity symbol. */
uint32_t parity(unsigned group, unsigned number, unsigned end);
/* Takes what is to be sent to a peer now. */
size_t stream(struct fmtp_sender *s, int p, uint8_t *bytes, size_t most, uint64_t now_ns);

#endif
