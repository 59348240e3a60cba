/* SPDX-License-Identifier: Apache-2.0
 *
 * What FMTP's sender sends to many receivers: the real cores on the simulated network of their
 * tests, which needs no bandwidth and little memory even for a thousand receivers.
 *
 *   outlook RECEIVERS LOSS unicast|blocks|parity SEED PRODUCTS SIZE
 *
 * Products of one size are offered at 12.3 Mbit/s, the mean of the papers' hour, and multicast at
 * 20 Mbit/s. Prints a line of name=value: the bytes that left the sender (FMTP's own, without lower
 * headers) and those of the products, the messages that reached the sender, and whether all
 * receivers have everything. Exit code 1: they do not.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop/timers.h"
#include "sim.h"

#define RATE_BPS 20000000
#define STREAM_BPS 12.3e6
#define DELAY_NS (25 * UINT64_C(1000000))

static bool is(const char *text, const char *name)
{
    return strcmp(text, name) == 0;
}

int main(int argc, char **argv)
{
    uint64_t receivers = argc == 7 ? strtoull(argv[1], NULL, 10) : 0, missing = 0;
    double loss = argc == 7 ? atof(argv[2]) : 0;
    const char *repair = argc == 7 ? argv[3] : "";
    uint64_t products = argc == 7 ? strtoull(argv[5], NULL, 10) : 0;
    uint64_t size = argc == 7 ? strtoull(argv[6], NULL, 10) : 0;

    if (!receivers || receivers > SIM_RECEIVERS || loss < 0 || loss >= 1 || !products || !size ||
        size > UINT32_MAX ||
        !(is(repair, "unicast") || is(repair, "blocks") || is(repair, "parity"))) {
        fprintf(stderr,
                "outlook: found other arguments; valid: RECEIVERS (to %d) LOSS "
                "unicast|blocks|parity SEED PRODUCTS SIZE\n",
                SIM_RECEIVERS);
        return 2;
    }
    struct sim_config cfg = {.layout = FMTP_LAYOUT_2021,
                             .rate_bps = RATE_BPS,
                             .unicast_bps = RATE_BPS,
                             .delay_ns = DELAY_NS,
                             .overhead_bytes = 42,
                             .f_snd = 5000,
                             .f_rcv = 20,
                             .loss = loss,
                             .receivers = (int)receivers,
                             .fec_k = is(repair, "unicast") ? 0 : 200,
                             .no_parity = is(repair, "blocks"),
                             .reorder_blocks = 1024,
                             .quiet = true,
                             .seed = (uint32_t)strtoull(argv[4], NULL, 10),
                             .products = products};
    struct sim *s = sim_new(&cfg);
    struct fmtp_server_stats sent = {0};

    for (uint64_t i = 0; i < products; i++)
        sim_product(s, (uint32_t)size, (uint64_t)((double)(i * size) * 8e9 / STREAM_BPS));
    sim_run(s, TP_NEVER);
    for (int i = 0; i < s->nrx; i++)
        for (uint64_t k = 0; k < products; k++)
            missing += !s->rx[i].intact[k];
    fmtp_sender_get_stats(s->sender, &sent);
    printf("receivers=%d product_bytes=%" PRIu64 " sent_bytes=%" PRIu64 " requests=%" PRIu64
           " acks=%" PRIu64 " missing=%" PRIu64 "\n",
           s->nrx, size * products, s->datagram_bytes + s->stream_bytes,
           sent.retx_requests + sent.repair_requests, sent.acks, missing);
    sim_free(s);
    return missing != 0;
}
