/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *program = "bench";

static void read_endpoint(const char *word, const char *value, struct sockaddr_in *out)
{
    const char *colon = strchr(value, ':');
    size_t len = colon ? (size_t)(colon - value) : strlen(value);
    char *end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

    memset(out, 0, sizeof *out);
    out->sin_family = AF_INET;
    char ip[INET_ADDRSTRLEN];
    if (len < sizeof ip) {
        memcpy(ip, value, len);
        ip[len] = 0;
    }
    if (len >= sizeof ip || inet_pton(AF_INET, ip, &out->sin_addr) != 1 ||
        (colon && (*end || port == 0 || port > 65535)))
        die_usage("found '%s'; valid: an IPv4 address, or one with a port as in 10.0.0.1:4000",
                  word);
    out->sin_port = htons((uint16_t)port);
}

void read_options(int argc, char **argv, int from, const struct option_word *words)
{
    for (int i = from; i < argc; i++) {
        const struct option_word *w = words;
        const char *equal = strchr(argv[i], '=');
        size_t len = equal ? (size_t)(equal - argv[i]) : 0;

        while (w->name && (strlen(w->name) != len || strncmp(w->name, argv[i], len) != 0))
            w++;
        if (!equal || !w->name)
            die_usage("found '%s'; valid: %s=VALUE and the like", argv[i], words->name);
        const char *value = equal + 1;
        if (w->text)
            *w->text = value;
        else if (w->endpoint)
            read_endpoint(argv[i], value, w->endpoint);
        else {
            char *end = NULL;
            errno = 0;
            *w->number = strtoull(value, &end, 10);
            if (errno || end == value || *end || *value == '-')
                die_usage("found '%s'; valid: a whole number", argv[i]);
        }
    }
}

double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
