/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of feeds (fmtp.key_file), read before ldmd gives up its rights to read them.
 */
#ifndef LDMD_KEYS_H
#define LDMD_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "conf.h"

/* Reads the files that the entries name. Returns -1; a line on errors says which is wrong, and
 * why. */
int keys_load(const struct conf *c, FILE *errors);
/* Gives the key from the file as it was read (32 bytes). Returns false if path is empty: no key. */
bool keys_get(const char *path, uint8_t *key);

#endif
