/* SPDX-License-Identifier: Apache-2.0
 *
 * FMTP's counters as lists of X(field, kind, decimals, help), from which programs make what they
 * publish (stats_page.h of common/c). kind: COUNTER, which only grows, or GAUGE. A value is in
 * units of 10^-decimals of the unit in its name.
 */
#ifndef FMTP_COUNTERS_H
#define FMTP_COUNTERS_H

#include <stdint.h>

/* Fields of struct fmtp_server_stats. */
#define FMTP_SERVER_COUNTERS(X)                                                             \
    X(products, COUNTER, 0, "Products multicast.")                                          \
    X(datagrams, COUNTER, 0, "Datagrams multicast.")                                        \
    X(datagram_bytes, COUNTER, 0, "Bytes of these, without IP and UDP headers.")            \
    X(blocks, COUNTER, 0, "Blocks of products multicast for the first time.")               \
    X(parity_sent, COUNTER, 0, "Parity datagrams multicast.")                               \
    X(repairs_sent, COUNTER, 0, "Blocks multicast again.")                                  \
    X(repair_requests, COUNTER, 0, "Requests of receivers that take repairs by multicast.") \
    X(retx_requests, COUNTER, 0, "Requests of receivers that take repairs by TCP.")         \
    X(retx_blocks, COUNTER, 0, "Blocks sent again by TCP.")                                 \
    X(retx_bytes, COUNTER, 0, "Bytes of these.")                                            \
    X(rejects, COUNTER, 0, "Requests rejected: the product was released.")                  \
    X(timeouts, COUNTER, 0, "Products released before all receivers acknowledged them.")    \
    X(acks, COUNTER, 0, "Acknowledgements: a receiver has finished a product.")             \
    X(unacknowledged, COUNTER, 0, "Pairs of product and receiver released unacknowledged.") \
    X(failed, COUNTER, 0, "Of these, products that the receiver had no room for.")          \
    X(nudges, COUNTER, 0, "Reminders to receivers that acknowledged nothing.")              \
    X(bad_messages, COUNTER, 0, "Malformed messages of receivers.")                         \
    X(excess, COUNTER, 0, "Blocks requested again that the connection had carried.")        \
    X(ahead, COUNTER, 0, "Requests about products that were not sent yet.")                 \
    X(send_errors, COUNTER, 0, "Datagrams that the system refused.")                        \
    X(laggards, COUNTER, 0, "Receivers disconnected because they held back too much.")      \
    X(refused, COUNTER, 0, "Connections refused.")                                          \
    X(displaced, COUNTER, 0, "Receivers whose place went to a host with fewer.")            \
    X(strangers, COUNTER, 0, "Connections without the key, or with another.")               \
    X(receivers, GAUGE, 0, "Receivers connected.")                                          \
    X(alone, GAUGE, 0, "Of these, repaired by TCP alone: they request too much.")           \
    X(retained, GAUGE, 0, "Products held until receivers acknowledge them.")                \
    X(retained_bytes, GAUGE, 0, "Bytes of these.")

/* For one receiver, at the sender: fields of struct fmtp_peer_counters. */
#define FMTP_PEER_COUNTERS(X)                                                              \
    X(pinned_products, GAUGE, 0, "Products multicast that it has not acknowledged.")       \
    X(pinned_bytes, GAUGE, 0, "Bytes of these: what it pins of the sender's queue.")       \
    X(pinned_seconds, GAUGE, 9, "Time since the oldest of these was multicast.")           \
    X(behind_products, GAUGE, 0, "Of these, products that another receiver acknowledged.") \
    X(behind_bytes, GAUGE, 0, "Bytes of these.")                                           \
    X(behind_seconds, GAUGE, 9, "Its lag: time since another acknowledged the oldest.")    \
    X(acks, COUNTER, 0, "Products acknowledged.")                                          \
    X(requests, COUNTER, 0, "Requests for repairs.")                                       \
    X(lost_blocks, COUNTER, 0, "Blocks that it reported lost.")                            \
    X(stream_blocks, COUNTER, 0, "Blocks sent again to it by TCP.")                        \
    X(rejects, COUNTER, 0, "Requests rejected: the product was released.")                 \
    X(rtt_seconds, GAUGE, 9, "Round-trip time; 0: not known.")                             \
    X(extended, GAUGE, 0, "1: takes repairs by multicast.")                                \
    X(alone, GAUGE, 0, "1: repaired by TCP alone: it requests too much.")

/* Fields of struct fmtp_client_stats. */
#define FMTP_CLIENT_COUNTERS(X)                                                              \
    X(datagrams, COUNTER, 0, "Datagrams received.")                                          \
    X(blocks, COUNTER, 0, "Blocks of products received by multicast.")                       \
    X(duplicate_blocks, COUNTER, 0, "Blocks received more than once.")                       \
    X(products, COUNTER, 0, "Products completed.")                                           \
    X(missed, COUNTER, 0, "Products that FMTP did not deliver.")                             \
    X(retx_requests, COUNTER, 0, "Requests for repairs by TCP.")                             \
    X(retx_blocks, COUNTER, 0, "Blocks received by TCP.")                                    \
    X(repair_requests, COUNTER, 0, "Requests for repairs by multicast.")                     \
    X(parity_symbols, COUNTER, 0, "Parity datagrams received.")                              \
    X(parity_drops, COUNTER, 0, "Of these, dropped for lack of room.")                       \
    X(repaired_blocks, COUNTER, 0, "Blocks received by multicast repair.")                   \
    X(decoded_blocks, COUNTER, 0, "Blocks decoded from parity.")                             \
    X(reorder_drops, COUNTER, 0, "Datagrams before their product's announcement, dropped.")  \
    X(bad_messages, COUNTER, 0, "Malformed datagrams or bytes of the connection.")           \
    X(socket_drops, COUNTER, 0, "Datagrams dropped by the socket: its buffer is too small.") \
    X(mac_failures, COUNTER, 0, "Datagrams with a wrong MAC.")                               \
    X(forged, COUNTER, 0, "Products withdrawn because they were forged.")                    \
    X(connections, COUNTER, 0, "Connections to the sender.")

struct fmtp_peer_counters {
#define FMTP_COUNTERS_FIELD(field, kind, decimals, help) uint64_t field;
    FMTP_PEER_COUNTERS(FMTP_COUNTERS_FIELD)
#undef FMTP_COUNTERS_FIELD
};

#endif
