/* SPDX-License-Identifier: Apache-2.0
 *
 * Feed type expressions; what was parsed is written and parsed again.
 */
#include <stdlib.h>
#include <string.h>

#include "common/feedtype.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = calloc(bytes + 1, 1), canonical[FEEDTYPE_TEXT_MAX], err[200] = "";
    uint32_t feed, again;
    if (!text)
        abort();
    memcpy(text, data, bytes);
    if (!feedtype_parse(text, &feed, err, sizeof err)) {
        if (!*err)
            abort();
    } else {
        feedtype_format(feed, canonical, sizeof canonical);
        /* Bit 31 has no name, so its text is for reading only. */
        if (!strstr(canonical, "0x80000000") &&
            (!feedtype_parse(canonical, &again, err, sizeof err) || again != feed))
            abort();
    }
    free(text);
    return 0;
}
