/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes FDT instances.
 */
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "fdt.h"

struct writer {
    char *out;
    size_t room, used;
    bool full;
};

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
    va_list args;

    if (w->full)
        return;
    va_start(args, format);
    int n = vsnprintf(w->out + w->used, w->room - w->used, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= w->room - w->used)
        w->full = true;
    else
        w->used += (size_t)n;
}

static void put_attribute(struct writer *w, const char *name, const char *value)
{
    if (!*value)
        return;
    put(w, " %s=\"", name);
    for (; *value; value++)
        if (strchr("<>&\"'", *value) || (unsigned char)*value < 0x20)
            put(w, "&#%u;", (unsigned char)*value);
        else
            put(w, "%c", *value);
    put(w, "\"");
}

static void put_fti(struct writer *w, const struct fcast_fti *f)
{
    put(w,
        " FEC-OTI-FEC-Encoding-ID=\"%u\" FEC-OTI-Maximum-Source-Block-Length=\"%u\""
        " FEC-OTI-Encoding-Symbol-Length=\"%u\"",
        f->fec, f->block_max, f->symbol_bytes);
    if (f->fec != FCAST_NO_CODE)
        put(w, " FEC-OTI-Max-Number-of-Encoding-Symbols=\"%u\"", f->n_max);
    if (f->fec == FCAST_STAIRCASE || f->fec == FCAST_TRIANGLE) {
        uint8_t bytes[5], text[16];
        put_be(bytes, f->seed, 4);
        bytes[4] = (uint8_t)((f->n1 - 3) << 5 | 1);
        EVP_EncodeBlock(text, bytes, sizeof bytes);
        put_attribute(w, "FEC-OTI-Scheme-Specific-Info", (char *)text);
    }
}

static void put_file(struct writer *w, const struct fcast_fdt_file *f)
{
    put(w, "<File TOI=\"%llu\"", (unsigned long long)f->toi);
    put_attribute(w, "Content-Location", f->meta.location);
    put_attribute(w, "Content-Type", f->meta.type);
    put_attribute(w, "Content-Encoding", f->meta.encoding);
    if (f->meta.has_length)
        put(w, " Content-Length=\"%llu\"", (unsigned long long)f->meta.length);
    if (f->has_transfer_length)
        put(w, " Transfer-Length=\"%llu\"", (unsigned long long)f->transfer_length);
    if (f->has_fti)
        put_fti(w, &f->fti);
    put(w, "/>\n");
}

size_t fcast_fdt_put(char *out, size_t room, const struct fcast_fdt *fdt)
{
    struct writer w = {.out = out, .room = room};

    put(&w,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<FDT-Instance xmlns=\"urn:ietf:params:xml:ns:fdt\" Expires=\"%llu\"%s>\n",
        (unsigned long long)fdt->expires, fdt->complete ? " Complete=\"true\"" : "");
    for (unsigned i = 0; i < fdt->count; i++)
        put_file(&w, &fdt->files[i]);
    put(&w, "</FDT-Instance>\n");
    return w.full ? 0 : w.used;
}

bool fcast_ext_fdt_get(const uint8_t *content, size_t len, unsigned *version, uint32_t *instance)
{
    if (len != 3)
        return false;
    *version = content[0] >> 4;
    *instance = (uint32_t)get_be(content, 3) & 0xfffff;
    return *version == 1 || *version == 2;
}

void fcast_ext_fdt_put(uint8_t out[3], uint32_t instance)
{
    put_be(out, UINT32_C(2) << 20 | (instance & 0xfffff), 3);
}
