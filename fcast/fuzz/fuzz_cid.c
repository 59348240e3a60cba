/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a Carousel Instance Descriptor; what can be read can be written again. */
#include <stdlib.h>

#include "fuzz.h"
#include "object.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct fcast_cid cid, again;
    static uint8_t text[65536];

    if (!fcast_cid_get(bytes, count, &cid))
        return 0;
    size_t len = fcast_cid_put(text, sizeof text, &cid);
    if (len && (!fcast_cid_get(text, len, &again) || again.count != cid.count))
        abort();
    return 0;
}
