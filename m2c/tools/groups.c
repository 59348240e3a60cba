/* SPDX-License-Identifier: Apache-2.0 */
#include "groups.h"

#include <arpa/inet.h>
#include <string.h>

#include "tool/command.h"

struct sockaddr_storage group_of(const struct sockaddr_storage *base, unsigned n)
{
    struct sockaddr_storage a = *base;
    uint32_t last;
    uint8_t *at = a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_addr.s6_addr + 12
                                          : (uint8_t *)&((struct sockaddr_in *)&a)->sin_addr.s_addr;

    memcpy(&last, at, sizeof last);
    last = htonl(ntohl(last) + n);
    memcpy(at, &last, sizeof last);
    if (!tp_address_is_multicast(&a))
        die_usage("--base: group %u above it is not a multicast address; valid: a lower --base", n);
    return a;
}

void check_addresses(const struct sockaddr_storage *base, const struct sockaddr_storage *interface)
{
    if (!base->ss_family || !interface->ss_family)
        die_usage("--base and --interface are needed");
    if (base->ss_family != interface->ss_family)
        die_usage("--base and --interface are of different families; valid: both IPv4 or IPv6");
}

bool take_wave_option(struct m2c_wave_config *wave, int option, const char *text)
{
    switch (option) {
    case WAVE_OPTION_SLOT:
        wave->slot_s = (double)parse_number("--slot", text, 100, 3600000) / 1e3;
        break;
    case WAVE_OPTION_QUIESCENCE:
        wave->quiescence_s = (double)parse_number("--quiescence", text, 100, 36000000) / 1e3;
        break;
    case WAVE_OPTION_BASE_RATE:
        wave->base_packets_per_s = (double)parse_number("--base-rate", text, 1, 100000000) / 1e3;
        break;
    default: return false;
    }
    return true;
}
