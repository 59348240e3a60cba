/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes feed type expressions: what was parsed is written and parsed again.
 */
#include <stdlib.h>
#include <string.h>

#include "common/feedtype.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = calloc(bytes + 1, 1), err[200] = "";
    if (!text)
        abort();
    memcpy(text, data, bytes);
    uint32_t feed;
    if (!feedtype_parse(text, &feed, err, sizeof err)) {
        if (!*err)
            abort();
    } else {
        char canonical[FEEDTYPE_TEXT_MAX];
        feedtype_format(feed, canonical, sizeof canonical);
        /* Bit 31 has no name, so its text cannot be parsed again. */
        uint32_t again;
        if (!strstr(canonical, "0x80000000") &&
            (!feedtype_parse(canonical, &again, err, sizeof err) || again != feed))
            abort();
    }
    free(text);
    return 0;
}
