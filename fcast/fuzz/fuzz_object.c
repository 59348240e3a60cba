/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a compound object. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "object.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fcast_object_header h;

    if (fcast_object_header_get(bytes, count, count, &h))
        return 0;
    if (h.len > count || strlen(h.meta.location) >= sizeof h.meta.location)
        abort();
    return 0;
}
