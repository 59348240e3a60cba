/* SPDX-License-Identifier: Apache-2.0
 *
 * Which frames a lossy line loses follows from its seed and from what identifies the packet inside,
 * so that a run can be repeated: the function of experiments/loss_model.py, which says what
 * identifies a packet.
 */
#ifndef WIRE_IDENTITY_H
#define WIRE_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Uniform in 32 bits. `frame` begins with its Ethernet header, with or without VLAN tags. False if
 * it holds no IPv4 packet with all the bytes that its kind needs. */
bool identity_hash(const uint8_t *frame, size_t size_bytes, uint64_t seed, uint32_t *hash);

#endif
