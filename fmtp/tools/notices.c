/* SPDX-License-Identifier: Apache-2.0 */
#include "notices.h"

#include <stdio.h>
#include <string.h>

#include "common.h"
#include "log_limit.h"

enum { ENTRIES = 64, LINES = 3 };
#define WINDOW_NS UINT64_C(60000000000)

static struct log_limit *limit;

static void tell_rest(const struct log_limit_rest *rest)
{
    progress("%s", "");
    fprintf(stderr, "%s: %llu more of these: %s %s\n", program, (unsigned long long)rest->lines,
            rest->peer, rest->kind);
}

void notices_tell(void *ctx, const struct sockaddr *peer, enum fmtp_notice what)
{
    struct sockaddr_storage host;
    struct log_limit_rest rest;
    char text[TP_ADDRESS_TEXT];

    (void)ctx;
    memcpy(&host, peer,
           peer->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    tp_address_set_port(&host, 0);
    tp_address_text((const struct sockaddr *)&host, text);
    if (!limit)
        limit = log_limit_new(ENTRIES, WINDOW_NS);
    snprintf(rest.peer, sizeof rest.peer, "%.63s", text);
    snprintf(rest.kind, sizeof rest.kind, "%s", fmtp_notice_text(what));
    bool may = !limit || log_limit_take(limit, rest.peer, rest.kind, LINES,
                                        (uint64_t)(now_s() * 1e9), &rest.lines);
    if (limit && rest.lines)
        tell_rest(&rest);
    if (!may)
        return;
    progress("%s", "");
    fprintf(stderr, "%s: receiver %s %s\n", program, text, rest.kind);
}

void notices_laggard(void *ctx, const struct sockaddr *peer, const struct fmtp_held *held)
{
    char text[TP_ADDRESS_TEXT];

    (void)ctx;
    progress("%s", "");
    fprintf(stderr,
            "fmtp-send: receiver %s is too far behind and is disconnected: files=%zu bytes=%llu "
            "seconds=%llu\n",
            tp_address_text(peer, text), held->products, (unsigned long long)held->bytes,
            (unsigned long long)(held->behind_ns / UINT64_C(1000000000)));
}

void notices_end(void)
{
    struct log_limit_rest rest;

    while (limit && log_limit_rest(limit, 0, true, &rest))
        tell_rest(&rest);
    log_limit_free(limit);
    limit = NULL;
}
