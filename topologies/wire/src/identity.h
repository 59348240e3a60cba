/* SPDX-License-Identifier: Apache-2.0
 *
 * The seed of a lossy line and what identifies the packet inside a frame determine whether the line
 * loses it, so that a run can be repeated. This is the function of
 * experiments/design/loss_model.py, which says what identifies a packet.
 */
#ifndef WIRE_IDENTITY_H
#define WIRE_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Hashes a frame to a number uniform in 32 bits. `frame` begins with its Ethernet header, with or
 * without VLAN tags. Returns false if it holds no IPv4 packet with all the bytes that its kind
 * needs. */
bool identity_hash(const uint8_t *frame, size_t size_bytes, uint64_t seed, uint32_t *hash);

#endif
