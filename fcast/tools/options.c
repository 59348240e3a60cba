/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdio.h>
#include <string.h>

struct sockaddr_storage option_endpoint(const char *option, const char *text)
{
    struct sockaddr_storage a;

    if (tp_address_parse(text, true, &a) < 0 || !tp_address_is_multicast(&a))
        die_usage("%s '%s'; valid: a multicast group such as 239.99.99.99:1711 or "
                  "[ff15::1]:1711",
                  option, text);
    return a;
}

int option_word(const char *option, const char *text, const char *const *words, int count)
{
    char valid[256] = "";

    for (int i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0)
            return i;
        size_t used = strlen(valid);
        snprintf(valid + used, sizeof valid - used, "%s%s", i ? ", " : "", words[i]);
    }
    die_usage("%s '%s'; valid: %s", option, text, valid);
}

enum fcast_protocol option_protocol(const char *text)
{
    static const char *const words[] = {"fcast", "flute", "seed"};

    return (enum fcast_protocol)option_word("--protocol", text, words, 3);
}

int option_variant(const char *text)
{
    static const char *const words[] = {"rfc5510", "rizzo", "flute"};

    return option_word("--variant", text, words, 3);
}

void option_key(const char *path, uint8_t key[TP_KEY_BYTES])
{
    struct tp_error err;

    if (tp_key_read(path, TP_KEY_OWNER, key, &err) < 0)
        die_usage("%s", err.text);
}
