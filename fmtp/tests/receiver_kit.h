/* SPDX-License-Identifier: Apache-2.0
 *
 * An application and a sender for tests of the receiving core: messages are made by hand, and the
 * next message to the sender is compared field by field. One receiver at a time.
 */
#ifndef RECEIVER_KIT_H
#define RECEIVER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "receiver.h"

enum { KIT_PRODUCTS = 16, KIT_BLOCK = 1448, KIT_MISSED = 200 };
#define MS UINT64_C(1000000)

struct kit {
    struct fmtp_receiver *r;
    struct fmtp_receiver_config cfg; /* may be changed before kit_open() */
    size_t bytes;                    /* the largest product: 400000 */
    uint8_t *data;                   /* where every product is stored */
    int nbegun, nended, nmissed;
    bool refuse; /* begun() returns NULL */
    uint32_t begun[KIT_MISSED], ended[KIT_MISSED], missed[KIT_MISSED];
    uint32_t retx; /* of the last product that ended */
    uint64_t now_ns;
};
extern struct kit kit;

/* Resets to LAYOUT_2017, equation (2) with factor 2 and 8 Mbit/s, KIT_PRODUCTS products, 1 MiB of
 * parity, 8 datagrams in the reorder buffer; time 1000 ns. */
void kit_reset(void);
void kit_open(void);
/* Opens an extended session with blocks of 100 bytes. */
void kit_open_extended(uint16_t fec_k, uint32_t next_index);
void kit_session(bool extended, uint16_t block, uint16_t fec_k, uint32_t next_index, uint64_t id);
void kit_close(void);

/* Delivers a datagram with a payload of len bytes `fill`, or with the given bytes. */
void kit_datagram(uint16_t flags, uint32_t index, uint32_t seq, size_t len, uint8_t fill);
void kit_bytes(uint16_t flags, uint32_t index, uint32_t seq, const uint8_t *payload, size_t len);
void kit_bop(uint32_t index, uint32_t size);
void kit_parity(uint32_t index, uint16_t group, uint8_t number, uint8_t end, const uint8_t *symbol,
                size_t len);
/* Delivers the same on the stream, in one piece. */
int kit_stream(uint16_t flags, uint32_t index, uint32_t seq, size_t len, uint8_t fill);
int kit_stream_bop(uint32_t index, uint32_t size);

/* Asserts that this is the next message to the sender. */
void kit_expect(uint16_t flags, uint32_t index, uint32_t seq, uint16_t len);
/* Asserts that the next message is this REPAIR_REQ; bits: the bitmap's first 32. */
void kit_expect_repair(uint32_t index, uint32_t group, unsigned k, uint8_t high, uint8_t round,
                       uint16_t need, uint32_t bits);
void kit_expect_nothing(void);
/* Takes all waiting output. */
size_t kit_drain(void);
void kit_advance(uint64_t ns);
struct fmtp_client_stats kit_stats(void);

#endif
