/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte vectors for tests of ONC RPC, captured from LDM-6.15.0 and LDM-6.13.17.
 * "xid" is 7 here.
 */
#ifndef RPC_KIT_H
#define RPC_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "ldmd/match.h"

#define CALL7(proc, len)                                                     \
    "800000" len " 00000007 00000000 00000002 000493fd 00000007 000000" proc \
    " 00000000 00000000 00000000 00000000 "
#define FEEDME_ARGS \
    "6b00c46f 000c6b2b 7fffffff 000f423f 00000001 ffffffff 00000002 2e2a0000 ffffffff"
#define FEEDME                                                                          \
    "8000004c 00000007 00000000 00000002 000493fd 00000006 00000004 00000000 00000000 " \
    "00000000 00000000 " FEEDME_ARGS
/* BLKDATA of 5 bytes: signature, packet 0, length, data, padding; then one without data. */
#define BLKDATA(len)                                                                \
    "800000" len " 00000007 00000000 00000002 000493fd 00000006 0000000d 00000000 " \
    "00000000 00000000 00000000 9a0d7432000000000000000000000000 00000000 "

/* The product of the captured HEREIS. */
extern const struct pq_info hereis_info;

/* Converts hexadecimal digits and spaces to bytes; returns their number. */
size_t unhex(const char *hex, uint8_t *out);
void assert_bytes(const struct xout *x, const char *hex);

#endif
