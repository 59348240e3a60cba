/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

/* splitmix64 */
static uint32_t below(uint64_t *random, uint32_t n)
{
    uint64_t z = *random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(((z ^ z >> 31) >> 32) * n >> 32);
}

void fcast_order_round(enum fcast_order order, uint32_t count, uint64_t *random, uint32_t *out)
{
    uint32_t first = order == FCAST_ROTATE && count ? below(random, count) : 0;

    for (uint32_t i = 0; i < count; i++)
        out[i] = i < count - first ? first + i : i - (count - first);
    if (order != FCAST_SHUFFLE)
        return;
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = below(random, i + 1), one = out[i];
        out[i] = out[j];
        out[j] = one;
    }
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint32_t fcast_symbol_id(uint8_t fec, uint32_t k, uint32_t n, uint32_t index)
{
    uint32_t repair = n - k, step = (uint32_t)(repair * 0.6180339887);

    if (index < k || fec == FCAST_RS)
        return index;
    while (step > 1 && common_divisor(step, repair) != 1)
        step--;
    step += step == 0;
    return k + (uint32_t)((uint64_t)(index - k) * step % repair);
}

struct fcast_symbol fcast_object_symbol(const struct fcast_fti *f, const struct fcast_partition *p,
                                        uint64_t number)
{
    /* Small blocks come last. */
    const uint32_t least = fcast_block_n(f, fcast_block_k(p, p->blocks - 1));
    const uint64_t even = (uint64_t)p->blocks * least;
    const uint32_t turn = number < even ? p->blocks : p->large_blocks;
    const uint64_t at = number < even ? number : number - even;
    const uint32_t index = (uint32_t)(at / turn) + (number < even ? 0 : least);
    const uint32_t block = (uint32_t)(at % turn), k = fcast_block_k(p, block);

    return (struct fcast_symbol){block, fcast_symbol_id(f->fec, k, fcast_block_n(f, k), index)};
}

uint64_t fcast_jitter(uint64_t mean, uint64_t *random)
{
    return mean / 2 + mean * below(random, 1u << 20) / (1u << 20);
}

uint32_t fcast_choose_k(uint64_t symbols, uint32_t k_max, uint64_t *groups, uint64_t *padding)
{
    uint64_t g = symbols <= k_max ? 1 : (symbols + k_max - 1) / k_max;
    uint32_t k = (uint32_t)((symbols + g - 1) / g);

    if (groups)
        *groups = g;
    if (padding)
        *padding = g * k - symbols;
    return k;
}
