/* SPDX-License-Identifier: Apache-2.0
 *
 * What ldmd's processes report about themselves while they run: one counters page each
 * (stats_page.h), QUEUE.stats/PROGRAM.PID. Pages are made before entering the sandbox (confine.h)
 * and updated without system calls, at most every COUNTERS_NS.
 */
#ifndef LDMD_COUNTERS_H
#define LDMD_COUNTERS_H

#include "fmtp.h"
#include "process.h"
#include "stats_page.h"

#define COUNTERS_NS (NS_PER_S / 4)

/* Counters of the top process. */
#define LDMD_COUNTERS(X)                                   \
    X(connections, GAUGE, 0, "Connections served.")        \
    X(entries, GAUGE, 0, "Processes of entries that run.") \
    X(refused, COUNTER, 0, "Connections refused.")         \
    X(failures, COUNTER, 0, "Processes of entries that failed or were killed.")

/* Counters of a sender, in addition to FMTP_SERVER_COUNTERS and FMTP_PEER_COUNTERS. */
#define MLDM_COUNTERS(X)                                                                  \
    X(queued_products, GAUGE, 0, "Products of the queue, of any feed, not examined yet.") \
    X(offered_products, COUNTER, 0, "Products given to FMTP.")                            \
    X(offered_bytes, COUNTER, 0, "Bytes of their data.")                                  \
    X(last_product_timestamp_seconds, GAUGE, 6,                                           \
      "When the last one was offered, since 1970; 0: never.")

/* Counters of a receiver, in addition to FMTP_CLIENT_COUNTERS. */
#define DOWN7_COUNTERS(X)                                                                      \
    X(multicast_products, COUNTER, 0, "Products received by FMTP.")                            \
    X(multicast_bytes, COUNTER, 0, "Bytes of their data.")                                     \
    X(repaired_products, COUNTER, 0, "Of these, products with blocks received by TCP.")        \
    X(latency_seconds, COUNTER, 6, "Sum over these of the time since they were announced.")    \
    X(latency_max_seconds, GAUGE, 6, "The longest such time.")                                 \
    X(negative_latencies, COUNTER, 0, "Of these, times below 0, counted as 0: clocks differ.") \
    X(backstop_products, COUNTER, 0, "Products fetched over the control connection.")          \
    X(backstop_bytes, COUNTER, 0, "Bytes of their data.")                                      \
    X(backlog_products, COUNTER, 0, "Products from before the subscription.")                  \
    X(backlog_bytes, COUNTER, 0, "Bytes of their data.")                                       \
    X(duplicates, COUNTER, 0, "Products that were already in the queue.")                      \
    X(rejected, COUNTER, 0, "Products malformed, with a wrong digest or without room.")        \
    X(missed, COUNTER, 0, "Products that multicast did not deliver.")                          \
    X(unavailable, COUNTER, 0, "Of these, products that the sender no longer had.")            \
    X(sessions, COUNTER, 0, "Subscriptions that were answered.")                               \
    X(receiving, GAUGE, 0, "1: FMTP is connected.")                                            \
    X(fallback, GAUGE, 0, "1: products arrive by LDM6 instead.")                               \
    X(in_flight_products, GAUGE, 0, "Products that have arrived in part.")                     \
    X(awaited_products, GAUGE, 0, "Missed products still to be fetched.")                      \
    X(last_product_timestamp_seconds, GAUGE, 6, "When the last one arrived, since 1970; 0: never.")

struct ldmd_counters {
    LDMD_COUNTERS(STATS_FIELD)
};
struct mldm_counters {
    MLDM_COUNTERS(STATS_FIELD)
};
struct down7_counters {
    DOWN7_COUNTERS(STATS_FIELD)
};
struct client_counters {
    FMTP_CLIENT_COUNTERS(STATS_FIELD)
};

/* Gives the directory of the pages. Returns false if the path is too long. */
bool counters_dir(char *out, size_t out_bytes, const char *queue);
/* Makes this process's page. Returns NULL if `SET ldmd.stats off` disables it, or after logging a
 * warning. */
struct stats_page *counters_ldmd(const struct options *opt, uint16_t port);
struct stats_page *counters_mldm(const struct options *opt, const struct conf_multicast *entry);
struct stats_page *counters_down7(const struct options *opt, const struct conf_receive *rcv);
/* Opens the file for a process's events, or returns NULL. */
struct qlog *counters_qlog(const struct options *opt, const char *program);
/* Removes a page whose process has ended. */
void counters_remove(const struct options *opt, const char *program, pid_t pid);
/* Removes all pages whose process has ended. */
void counters_sweep(const struct options *opt);

void counters_put_ldmd(struct stats_page *p, const struct ldmd_counters *own);
void counters_put_mldm(struct stats_page *p, const struct mldm_counters *own,
                       struct fmtp_server *server);
void counters_put_down7(struct stats_page *p, const struct down7_counters *own,
                        const struct client_counters *fmtp);
/* Adds the counters of an FMTP session. */
void counters_add_client(struct client_counters *sum, const struct fmtp_client *client);
/* Returns microseconds since 1970. */
uint64_t counters_timestamp(void);

/* When to write a page next. */
struct counters_pace {
    uint64_t due_ns;
    bool waits; /* something may have changed since */
};
/* Call this at each turn: returns true if it is time to write. */
bool counters_due(struct counters_pace *pace, uint64_t now);
/* Returns when the next turn is due at the latest. */
uint64_t counters_deadline(const struct counters_pace *pace);

#endif
