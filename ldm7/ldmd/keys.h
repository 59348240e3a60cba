/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of feeds (fmtp.key_file), read before ldmd gives up what it may read.
 */
#ifndef LDMD_KEYS_H
#define LDMD_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "conf.h"

/* Reads the files that the entries name. -1: a line on errors says which is wrong, and why. */
int keys_load(const struct conf *c, FILE *errors);
/* The key of the file, as it was read (32 bytes). False: path is empty, there is none. */
bool keys_get(const char *path, uint8_t *key);

#endif
