/* SPDX-License-Identifier: Apache-2.0
 *
 * What m2c-send and m2c-recv share: the session's groups and the wave's options.
 */
#ifndef M2C_TOOLS_GROUPS_H
#define M2C_TOOLS_GROUPS_H

#include <netinet/in.h>

#include "wave.h"

/* Returns the address of the session's n-th group: n above --base. Ends the program with exit code
 * 2 if that is not a multicast address. */
struct sockaddr_storage group_of(const struct sockaddr_storage *base, unsigned n);
/* Ends the program with exit code 2 unless --base and --interface were given and belong to one
 * address family. */
void check_addresses(const struct sockaddr_storage *base, const struct sockaddr_storage *interface);

/* Options of the wave, which must be the same for sender and receivers. */
enum { WAVE_OPTION_SLOT = 1000, WAVE_OPTION_QUIESCENCE, WAVE_OPTION_BASE_RATE };
#define WAVE_OPTIONS                                                     \
    {"slot", required_argument, NULL, WAVE_OPTION_SLOT},                 \
        {"quiescence", required_argument, NULL, WAVE_OPTION_QUIESCENCE}, \
    {                                                                    \
        "base-rate", required_argument, NULL, WAVE_OPTION_BASE_RATE      \
    }
#define WAVE_USAGE                                                                   \
    "  --slot MS          duration of a time slot, ms (default 10000)\n"             \
    "  --quiescence MS    shortest rest of a channel, ms: more than a leave takes\n" \
    "                     (default 300000)\n"                                        \
    "  --base-rate N      packets per 1,000 s on the base channel (default 1000)\n"
/* Returns false for any other option. */
bool take_wave_option(struct m2c_wave_config *wave, int option, const char *text);

#endif
