/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <stdio.h>

void stats_add(struct fmtp_server_stats *all, const struct fmtp_server_stats *s)
{
    all->products += s->products;
    all->datagrams += s->datagrams;
    all->datagram_bytes += s->datagram_bytes;
    all->blocks += s->blocks;
    all->retx_requests += s->retx_requests;
    all->retx_blocks += s->retx_blocks;
    all->retx_bytes += s->retx_bytes;
    all->rejects += s->rejects;
    all->timeouts += s->timeouts;
    all->acks += s->acks;
    all->unacknowledged += s->unacknowledged;
    all->failed += s->failed;
    all->bad_messages += s->bad_messages;
    all->send_errors += s->send_errors;
    all->too_long += s->too_long;
    all->refused += s->refused;
    all->laggards += s->laggards;
    all->repair_requests += s->repair_requests;
    all->parity_sent += s->parity_sent;
    all->repairs_sent += s->repairs_sent;
    all->nudges += s->nudges;
    all->ahead += s->ahead;
    all->receivers += s->receivers;
    all->extended += s->extended;
}

void stats_print(const struct fmtp_server_stats *s, double seconds, bool ok)
{
    printf(
        "products=%llu receivers=%zu extended=%zu seconds=%.3f datagrams=%llu datagram_bytes=%llu "
        "blocks=%llu retx_requests=%llu retx_blocks=%llu retx_bytes=%llu rejects=%llu timeouts=%llu "
        "acks=%llu unacknowledged=%llu failed=%llu repair_requests=%llu parity_sent=%llu repairs_sent=%llu "
        "nudges=%llu bad_messages=%llu ahead=%llu refused=%llu laggards=%llu send_errors=%llu result=%s\n",
        (unsigned long long)s->products, s->receivers, s->extended, seconds,
        (unsigned long long)s->datagrams, (unsigned long long)s->datagram_bytes,
        (unsigned long long)s->blocks, (unsigned long long)s->retx_requests,
        (unsigned long long)s->retx_blocks, (unsigned long long)s->retx_bytes,
        (unsigned long long)s->rejects, (unsigned long long)s->timeouts,
        (unsigned long long)s->acks, (unsigned long long)s->unacknowledged,
        (unsigned long long)s->failed, (unsigned long long)s->repair_requests,
        (unsigned long long)s->parity_sent, (unsigned long long)s->repairs_sent,
        (unsigned long long)s->nudges, (unsigned long long)s->bad_messages,
        (unsigned long long)s->ahead, (unsigned long long)s->refused,
        (unsigned long long)s->laggards, (unsigned long long)s->send_errors,
        ok ? "complete" : "incomplete");
}
