/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes patterns from the network: the first line is the pattern, the rest the identifier.
 */
#include "fuzz.h"
#include "ldmd/match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ldm_class c = {.to = LDM_TIME_END, .n = 1};
    struct pq_info info = {.feedtype = 1};
    size_t i = 0, k = 0;

    c.specs[0].feedtype = size > 0 && data[0] == 'S' ? 0 : 1;
    while (i < size && data[i] != '\n' && i < LDM_PATTERN_MAX) {
        c.specs[0].pattern[i] = (char)data[i];
        i++;
    }
    for (i++; i < size && k < PQ_IDENT_MAX; i++)
        info.ident[k++] = (char)data[i];
    struct pq_signature sig;
    class_take_signature(&c, &sig);
    struct matcher m;
    char err[256];
    if (matcher_init(&m, &c, err, sizeof err) == 0) {
        matcher_wants(&m, &info);
        matcher_free(&m);
    }
    return 0;
}
