/* SPDX-License-Identifier: Apache-2.0
 *
 * The relay's configuration file: one statement per line, '#' begins a comment.
 *
 *   ready PATH           file to write (JSON) when all lines are ready
 *   stats PATH           file to write (JSON) on SIGUSR1 and at the end
 *   gap_us N             least time between two wake-ups (default 250)
 *   priority N           SCHED_FIFO priority, 0 = do not ask for it (default 50)
 *   line LINK DIRECTION IN OUT [delay_us=N] [jitter_us=N] [loss=P] [seed=N] [slots=N]
 *                        frames that arrive at interface IN leave at OUT; DIRECTION is a label;
 *                        slots: frames the receive ring can hold (default 1024)
 */
#ifndef WIRE_CONFIG_H
#define WIRE_CONFIG_H

#include <net/if.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONFIG_MAX_LINES = 512,
    CONFIG_NAME = 64,
    CONFIG_PATH = 256,
    CONFIG_MAX_DELAY_US = 10 * 1000 * 1000,
    CONFIG_MAX_SLOTS = 1 << 20
};

struct config_line {
    char link[CONFIG_NAME];
    char direction[CONFIG_NAME];
    char in[IF_NAMESIZE];
    char out[IF_NAMESIZE];
    int64_t delay_us;
    int64_t jitter_us;
    double loss;
    uint64_t seed;
    unsigned slots;
};

struct config {
    char ready[CONFIG_PATH];
    char stats[CONFIG_PATH];
    int64_t gap_us;
    int priority;
    size_t n_lines;
    struct config_line *lines; /* free with config_free */
};

/* Parses `text`. Returns 0, or -1 with "NAME:LINE: found ...; valid: ..." in `error`. */
int config_parse(struct config *config, const char *name, const char *text, char *error,
                 size_t error_size);
/* Frees the lines. */
void config_free(struct config *config);

#endif
