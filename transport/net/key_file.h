/* SPDX-License-Identifier: Apache-2.0
 *
 * A key that people put into a file.
 */
#ifndef TRANSPORT_NET_KEY_FILE_H
#define TRANSPORT_NET_KEY_FILE_H

#include <stdint.h>
#include <sys/stat.h>

#include "error.h"

#define TP_KEY_BYTES 32u

/* Mode bits that a key file may not have. */
#define TP_KEY_OWNER (S_IRWXG | S_IRWXO)                 /* valid: 0400, 0600 */
#define TP_KEY_GROUP_READS (S_IRWXO | S_IWGRP | S_IXGRP) /* valid: 0400, 0600, 0640 */

/* The key in a regular file without the forbidden mode bits: one line of 64 hexadecimal digits,
 * beside empty lines and those that begin with #. -1: *err says where and why; no byte of the file
 * is in it. */
int tp_key_read(const char *path, mode_t forbidden, uint8_t key[TP_KEY_BYTES],
                struct tp_error *err);

#endif
