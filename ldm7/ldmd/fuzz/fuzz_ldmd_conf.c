/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the configuration parser: every text is either valid or has at least one message.
 */
#include <stdlib.h>

#include "fuzz.h"
#include "ldmd/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf c;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    int rc = conf_parse(&c, "fuzz", (const char *)data, size, f);

    fclose(f);
    if ((rc == 0) != (n == 0))
        abort();
    conf_free(&c);
    free(text);
    return 0;
}
