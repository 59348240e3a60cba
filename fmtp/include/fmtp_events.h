/* SPDX-License-Identifier: Apache-2.0
 *
 * The events about products that senders and receivers write (qlog.h), one table of X(constant,
 * name, importance, data, help). docs/reference/contracts.md has the same rows.
 */
#ifndef FMTP_EVENTS_H
#define FMTP_EVENTS_H

#define FMTP_EVENTS_SCHEMA "urn:downpour:qlog:fmtp-1"

/* clang-format off */
#define FMTP_EVENTS(X)                                                                              \
    X(STARTED, "product_started", "core", "index, bytes, name", "The sender accepted it; a receiver has its BOP.") \
    X(SENT, "product_sent", "base", "index", "All its blocks were multicast.")                      \
    X(COMPLETED, "product_completed", "core", "index, retx_blocks, delay_s", "A receiver has all.") \
    X(MISSED, "product_missed", "core", "index", "FMTP does not deliver it.")                         \
    X(WITHDRAWN, "product_withdrawn", "base", "index", "What arrived was not the sender's.")           \
    X(REFUSED, "product_refused", "base", "index, bytes", "A receiver has no room for it.")         \
    X(LOST, "block_lost", "extra", "index, first, blocks", "Blocks were missing when a receiver first requested them.") \
    X(REQUESTED, "repair_requested", "base", "index, blocks, by, host", "A receiver requested blocks, by multicast or on its connection (tcp); the sender adds its host.") \
    X(REPAIRED, "repair_sent", "base", "index, blocks, by, host", "The sender sent blocks or parity by multicast, or blocks on a receiver's connection (tcp).") \
    X(EXPIRED, "timer_expired", "base", "index, timer", "A timer ended: the sender's tau_snd, a receiver's tau_rcv, or its patience with a repair by multicast.") \
    X(FULL, "queue_full", "base", "index, host", "The sender's queue of answers to a receiver, or a receiver's of requests, has no room.") \
    X(RELEASED, "product_released", "core", "index, why", "The sender released it.")                  \
    X(JOINED, "receiver_joined", "core", "host, receivers", "A receiver connected.")                \
    X(LEFT, "receiver_left", "core", "host, receivers", "A connection ended.")
/* clang-format on */

#define FMTP_EVENT_NAME_(constant, name, importance, data, help) \
    static const char FMTP_EVENT_##constant[] __attribute__((unused)) = "fmtp:" name;
FMTP_EVENTS(FMTP_EVENT_NAME_)

#endif
