/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a key from a file that people edit.
 */
#ifndef TRANSPORT_NET_KEY_FILE_H
#define TRANSPORT_NET_KEY_FILE_H

#include <stdint.h>
#include <sys/stat.h>

#include "error.h"

#define TP_KEY_BYTES 32u

/* Permission bits that a key file must not have. */
#define TP_KEY_OWNER (S_IRWXG | S_IRWXO)                 /* valid: 0400, 0600 */
#define TP_KEY_GROUP_READS (S_IRWXO | S_IWGRP | S_IXGRP) /* valid: 0400, 0600, 0640 */

/* Reads the key from a regular file without the forbidden permission bits: one line of 64
 * hexadecimal digits, besides empty lines and those that begin with #. Returns -1 and *err says
 * where and why; it never contains bytes of the file. */
int tp_key_read(const char *path, mode_t forbidden, uint8_t key[TP_KEY_BYTES],
                struct tp_error *err);

#endif
