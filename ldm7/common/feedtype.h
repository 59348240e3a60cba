/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM feed types: a set of 32 bits, written as an expression of names
 * (`NGRID`, `ANY - EXP`, `~(WMO|EXP)`; case-insensitive; | and + union, - difference, ~
 * complement).
 */
#ifndef LDM_FEEDTYPE_H
#define LDM_FEEDTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FEEDTYPE_NONE 0u
#define FEEDTYPE_NGRID 0x00800000u
#define FEEDTYPE_EXP 0x40000000u
#define FEEDTYPE_ANY 0xFFFFFFFFu

/* Room for every set of bits as text, NUL included. */
#define FEEDTYPE_TEXT_MAX 320

/* Returns false with one message in err that quotes the offending part. */
bool feedtype_parse(const char *text, uint32_t *out, char *err, size_t err_bytes);
/* Formats canonically: named sets in descending order of value joined by |, unnamed bits last in
 * hexadecimal. Returns out. out_bytes >= FEEDTYPE_TEXT_MAX always suffices. */
char *feedtype_format(uint32_t feedtype, char *out, size_t out_bytes);

#endif
