/* SPDX-License-Identifier: Apache-2.0
 *
 * FMTPv3 messages as bytes. A 12-byte big-endian header {index u32, seqnum u32 (byte offset),
 * payloadlen u16, flags u16} on UDP and TCP alike; the message types are described below.
 */
#ifndef FMTP_WIRE_H
#define FMTP_WIRE_H

#include "fmtp.h"

enum fmtp_flags {                         /* exactly one per message */
                  FMTP_BOP = 0x0001,      /* UDP S->group; BOP body */
                  FMTP_EOP = 0x0002,      /* UDP S->group */
                  FMTP_MEM_DATA = 0x0004, /* UDP S->group; data */
                  FMTP_RETX_REQ = 0x0008, /* TCP R->S; payloadlen = bytes wanted, no payload */
                  FMTP_RETX_REJ = 0x0010, /* TCP S->R; product no longer available */
                  /* TCP R->S; the receiver is done with the product. Extension 1: seqnum = blocks
                   * of it that did not come by MEM_DATA. */
                  FMTP_RETX_END = 0x0020,
                  FMTP_RETX_DATA = 0x0040, /* TCP S->R; data */
                  FMTP_BOP_REQ = 0x0080,   /* TCP R->S */
                  FMTP_RETX_BOP = 0x0100,  /* TCP S->R; BOP body */
                  FMTP_EOP_REQ = 0x0200,   /* TCP R->S */
                  FMTP_RETX_EOP = 0x0400,  /* TCP S->R; answer to EOP_REQ or unsolicited */
                  /* Extension 1: only between peers that agreed on it (struct fmtp_session). */
                  /* UDP S->group; seqnum: struct fmtp_parity; block_bytes of parity. */
                  FMTP_PARITY = 0x0800,
                  /* UDP S->group; a block again, proves nothing about order. */
                  FMTP_REPAIR = 0x1000,
                  /* TCP R->S; seqnum: FEC group; body: struct fmtp_repair_req. */
                  FMTP_REPAIR_REQ = 0x2000,
                  /* Only between programs of Downpour (fmtp_session.ours). */
                  /* TCP S->R; the sender has not reached this index; seqnum = the index it
                   * multicasts next, payloadlen = flags of the message this answers, no payload. */
                  FMTP_NOT_YET = 0x4000,
                  /* Only if both agreed on it (fmtp_session.progress). TCP R->S; this product's
                   * MEM_DATA below seqnum was read or lost; payloadlen = size of the buffer for
                   * what is unread, in FMTP_PROGRESS_UNIT, no payload. */
                  FMTP_PROGRESS = 0x8000
};

#define FMTP_PROGRESS_UNIT 65536u /* bytes */

/* Sequence numbers that the originals neither send nor read. In RETX_END: the receiver is done with
 * the product but could not keep it. In RETX_REJ, with the next index: the sender is done. */
#define FMTP_END_FAILED UINT32_MAX
#define FMTP_REJ_BYE UINT32_MAX

#define FMTP_MAX_PACKET (FMTP_HEADER_LEN + FMTP_DATA_LEN)
#define FMTP_BOP_FIXED_MAX 18u
#define FMTP_MAX_BOP_BODY FMTP_DATA_LEN

/* One RETX_REQ covers at most this many consecutive blocks (payloadlen is a u16). */
#define FMTP_REQ_BLOCKS (65535u / FMTP_DATA_LEN)

struct fmtp_header {
    uint32_t index;
    uint32_t seqnum;
    uint16_t payloadlen;
    uint16_t flags;
};

/* Writes the header in network byte order. */
void fmtp_header_put(uint8_t out[FMTP_HEADER_LEN], const struct fmtp_header *h);
/* Reads a header; any bytes are valid. */
void fmtp_header_get(const uint8_t in[FMTP_HEADER_LEN], struct fmtp_header *h);

struct fmtp_bop {
    struct timespec start; /* CLOCK_REALTIME of the sender; not on the wire in LAYOUT_2017 */
    uint32_t size_bytes;
    uint16_t meta_len;
    const uint8_t *meta; /* after decoding: points into the decoded bytes */
};

/* Returns the number of bytes before the metadata: 6 (2017) or 18 (2021). */
size_t fmtp_bop_fixed_len(enum fmtp_layout layout);
/* Writes the body only (no header). out has room for fmtp_bop_fixed_len() + meta_len. Returns the
 * length. */
size_t fmtp_bop_put(enum fmtp_layout layout, uint8_t *out, const struct fmtp_bop *bop);
/* Returns -1 if malformed: 2017 requires exactly 6+meta_len bytes, 2021 at least 18+meta_len. */
int fmtp_bop_get(enum fmtp_layout layout, const uint8_t *body, size_t len, struct fmtp_bop *bop);

/* Returns the number of blocks of a product of this size. */
static inline uint32_t fmtp_blocks(uint32_t size_bytes, uint32_t block_bytes)
{
    return (uint32_t)(((uint64_t)size_bytes + block_bytes - 1) / block_bytes);
}

/* Returns the bytes of the block that begins at offset seqnum < size_bytes. */
static inline uint32_t fmtp_block_len(uint32_t size_bytes, uint32_t seqnum, uint32_t block_bytes)
{
    uint32_t left = size_bytes - seqnum;
    return left < block_bytes ? left : block_bytes;
}

/* --- extension 1: FEC groups are described in fec.h */

/* The position of a parity symbol: the seqnum of PARITY. */
struct fmtp_parity {
    uint16_t group;
    uint8_t number; /* number of the symbol in its group, from 0 */
    uint8_t end;    /* symbols of the group sent by the end of this burst: > number */
};

/* Returns the seqnum of a PARITY message. */
static inline uint32_t fmtp_parity_seqnum(struct fmtp_parity p)
{
    return (uint32_t)p.group << 16 | (uint32_t)p.number << 8 | p.end;
}

/* Returns the parts of a PARITY message's seqnum. */
static inline struct fmtp_parity fmtp_parity_get(uint32_t seqnum)
{
    return (struct fmtp_parity){(uint16_t)(seqnum >> 16), (uint8_t)(seqnum >> 8), (uint8_t)seqnum};
}

/* A receiver lacks more blocks of a group than the parity it holds can replace. On the wire: high
 * u8, round u8, need u16, bitmap (bit i of the group, least significant first). */
struct fmtp_repair_req {
    uint8_t high;          /* largest end known to the receiver; 0: none */
    uint8_t round;         /* 0: first request; higher: what was sent did not suffice */
    uint16_t need;         /* symbols that would suffice: 1..k */
    const uint8_t *bitmap; /* (k+7)/8 bytes; after decoding: points into the decoded bytes */
};

#define FMTP_REPAIR_REQ_FIXED 4u
#define FMTP_REPAIR_REQ_MAX (FMTP_REPAIR_REQ_FIXED + 32u)

/* Returns the bytes of the body for a group of k blocks (k <= 255). */
static inline size_t fmtp_repair_req_len(unsigned k)
{
    return FMTP_REPAIR_REQ_FIXED + (k + 7) / 8;
}

/* Writes the body; out has room for fmtp_repair_req_len(k). Returns that length. */
size_t fmtp_repair_req_put(uint8_t *out, const struct fmtp_repair_req *req, unsigned k);
/* Returns -1 if malformed: another length, bits beyond block k, need 0 or more than the bits
 * set. */
int fmtp_repair_req_get(const uint8_t *body, size_t len, unsigned k, struct fmtp_repair_req *req);

/* Returns factor * ns, saturating. */
uint64_t fmtp_scaled_ns(double factor, double ns);
/* Returns factor * size * 8 / rate in ns, saturating; equations (1) and (2) of MPUP16 II. rate_bps
 * 0 gives 0. */
uint64_t fmtp_scaled_tx_ns(double factor, uint32_t size_bytes, uint64_t rate_bps);

#endif
