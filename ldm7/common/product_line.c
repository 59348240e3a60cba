/* SPDX-License-Identifier: Apache-2.0 */
#include "product_line.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "feedtype.h"

char *product_line_format(const struct pq_info *info, char *out, size_t out_bytes)
{
    char when[48] = "?";
    time_t s = info->creation.tv_sec;
    /* A time from the network may exceed every calendar: gmtime_r() then fails. */
    struct tm tm;
    if (!gmtime_r(&s, &tm) || !strftime(when, sizeof when, "%Y%m%d%H%M%S", &tm))
        snprintf(when, sizeof when, "%lld", (long long)s);
    char feed[FEEDTYPE_TEXT_MAX];
    snprintf(out, out_bytes, "%10u %s.%06ld %s %03u  %.*s", info->size, when,
             (long)info->creation.tv_usec, feedtype_format(info->feedtype, feed, sizeof feed),
             info->seqno, PQ_IDENT_MAX, info->ident);
    return out;
}

char *signature_format(const struct pq_signature *sig, char out[33])
{
    for (size_t i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", sig->bytes[i]);
    return out;
}

bool signature_parse(const char *hex32, struct pq_signature *sig)
{
    static const char digits[] = "0123456789abcdef";

    if (strlen(hex32) != 32)
        return false;
    for (size_t i = 0; i < 16; i++) {
        const char *hi = strchr(digits, tolower((unsigned char)hex32[2 * i]));
        const char *lo = strchr(digits, tolower((unsigned char)hex32[2 * i + 1]));

        if (!hi || !lo)
            return false;
        sig->bytes[i] = (uint8_t)((hi - digits) << 4 | (lo - digits));
    }
    return true;
}
