/* SPDX-License-Identifier: Apache-2.0
 *
 * Replays a trace into a product queue in real time.
 */
#ifndef LDM_REPLAY_H
#define LDM_REPLAY_H

#include "common/trace.h"
#include "queue/pq.h"

struct replay_options {
    const char *trace_name, *ident, *origin;
    double scale; /* trace seconds per second */
    double start_delay_s, full_wait_s;
    uint64_t seed;
    uint32_t feedtype;
};

/* Generates a product and computes its digest before it is due; at its time it is only committed.
 * Ends at the end of the trace or when tool_stop is set; logs "Replayed: ..." in both cases.
 * Returns an exit code. */
int replay(struct pq *q, const struct trace *t, const struct replay_options *o);

#endif
