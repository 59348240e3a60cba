/* SPDX-License-Identifier: Apache-2.0 */
/* FLUTE's File Delivery Table. */
#include <stdlib.h>

#include "fdt.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fcast_fdt fdt;
    char why[128];

    if (fcast_fdt_get(bytes, count, &fdt, why))
        return 0;
    for (unsigned i = 0; i < fdt.count; i++)
        if (!fdt.files[i].toi || !fdt.files[i].meta.location[0] ||
            (fdt.files[i].has_fti && !fcast_fti_is_good(&fdt.files[i].fti)))
            abort();
    fcast_fdt_free(&fdt);
    return 0;
}
