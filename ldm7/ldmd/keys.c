/* SPDX-License-Identifier: Apache-2.0 */
#include "keys.h"

#include <string.h>

#include "common/alloc.h"
#include "fmtp.h"

struct named_key {
    const char *path; /* in the configuration, which outlives it */
    uint8_t key[FMTP_KEY_BYTES];
};

static struct named_key *keys;
static size_t nkeys;

static const struct named_key *find(const char *path)
{
    for (size_t i = 0; i < nkeys; i++)
        if (strcmp(keys[i].path, path) == 0)
            return &keys[i];
    return NULL;
}

static int load(const struct conf *c, const char *path, FILE *errors)
{
    struct named_key k = {.path = path};
    struct tp_error err;

    if (*path == '\0' || find(path))
        return 0;
    if (c->set.mac_level == 0 || c->set.fmtp_layout == 2017) {
        fprintf(errors,
                "ldmd: fmtp.key_file \"%s\": found fmtp.mac_level %u, fmtp.layout %u; valid: level "
                "1, 2 or auto in layout 2021\n",
                path, c->set.mac_level, c->set.fmtp_layout);
        return -1;
    }
    if (fmtp_key_read(path, k.key, &err) < 0) {
        fprintf(errors, "ldmd: fmtp.key_file: %s\n", err.text);
        return -1;
    }
    keys = xgrow(keys, &nkeys, sizeof k);
    keys[nkeys - 1] = k;
    return 0;
}

int keys_load(const struct conf *c, FILE *errors)
{
    int rc = 0;

    for (size_t i = 0; i < c->nmulticasts; i++)
        rc |= load(c, c->multicasts[i].key_file, errors);
    for (size_t i = 0; i < c->nreceives; i++)
        rc |= load(c, c->receives[i].key_file, errors);
    return rc;
}

bool keys_get(const char *path, uint8_t *key)
{
    const struct named_key *k = *path == '\0' ? NULL : find(path);

    if (k)
        memcpy(key, k->key, sizeof k->key);
    return k;
}
