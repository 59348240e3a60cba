/* SPDX-License-Identifier: Apache-2.0 */
#include "rx.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { LARGEST = 1 << 18 };

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct rx *rx = ctx;
    uint8_t sum = 0;

    (void)start;
    for (uint16_t i = 0; i < meta_len; i++)
        sum ^= ((const uint8_t *)meta)[i];
    if (size > LARGEST || sum == 0x55)
        return NULL;
    for (int i = 0; i < RX_PRODUCTS; i++)
        if (rx->open[i].data && rx->open[i].index == index)
            abort();
    for (int i = 0; i < RX_PRODUCTS; i++)
        if (!rx->open[i].data) {
            rx->open[i].index = index;
            rx->open[i].data = malloc(size ? size : 1);
            return rx->open[i].data;
        }
    abort();                             /* more in flight than max_products */
}

static int take(struct rx *rx, uint32_t index)
{
    for (int i = 0; i < RX_PRODUCTS; i++)
        if (rx->open[i].data && rx->open[i].index == index) {
            free(rx->open[i].data);
            rx->open[i].data = NULL;
            return 1;
        }
    return 0;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    (void)retx_blocks;
    (void)start;
    if (!take(ctx, index))
        abort();
}

static void missed(void *ctx, uint32_t index)
{
    take(ctx, index);                    /* it need not have begun */
}

struct fmtp_receiver *rx_new(struct rx *rx, enum fmtp_layout layout)
{
    struct fmtp_receiver_config cfg = {
        .layout = layout, .f_rcv = 5, .r_mc_bps = 20000000, .max_products = RX_PRODUCTS,
        .ctx = rx, .begun = begun, .ended = ended, .missed = missed};

    memset(rx, 0, sizeof *rx);
    return fmtp_receiver_new(&cfg);
}

void rx_free(struct rx *rx, struct fmtp_receiver *r)
{
    fmtp_receiver_free(r);
    for (int i = 0; i < RX_PRODUCTS; i++)
        if (rx->open[i].data)
            abort();
}

void rx_drain(struct fmtp_receiver *r, size_t n)
{
    const uint8_t *bytes;
    size_t len = fmtp_receiver_output(r, &bytes);
    volatile uint8_t sum = 0;

    len = len < n ? len : n;
    for (size_t i = 0; i < len; i++)
        sum ^= bytes[i];
    (void)sum;
    fmtp_receiver_sent(r, len);
}
