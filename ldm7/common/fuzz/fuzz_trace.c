/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes trace files: what is accepted must be as the header promises.
 */
#include <stdlib.h>

#include "common/trace.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *errors = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&errors, &n);
    if (!f)
        abort();
    struct trace t;
    long bad = trace_parse((const char *)data, bytes, "f", &t, f);
    fclose(f);
    if (bad < 0 || (bad > 0) != (n > 0) || (bad > 0) != (t.count == 0))
        abort();
    uint64_t total = 0;
    for (size_t i = 0; i < t.count; i++) {
        total += t.entries[i].size_bytes;
        if (!t.entries[i].size_bytes || (i && t.entries[i].time_us < t.entries[i - 1].time_us) ||
            t.entries[i].time_us < 0 ||
            t.entries[i].time_us >= INT64_C(253402300800000000)) /* year 10000 */
            abort();
    }
    if (total != t.total_bytes)
        abort();
    free(errors);
    trace_free(&t);
    return 0;
}
