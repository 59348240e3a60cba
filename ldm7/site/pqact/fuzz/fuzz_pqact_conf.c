/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the configuration parser: every text is either valid or has at least one message.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "site/pqact/actconf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *messages = NULL, *text = malloc(size + 1);
    size_t n = 0;
    FILE *f = open_memstream(&messages, &n);

    memcpy(text, data, size);
    text[size] = '\0';
    struct actconf c;
    int rc = actconf_parse(&c, "fuzz", text, "/data", f);
    fclose(f);
    if ((rc == 0) != (n == 0))
        abort();
    actconf_free(&c);
    free(messages);
    free(text);
    return 0;
}
