/* SPDX-License-Identifier: Apache-2.0 */
#include "fdt.h"

#include <expat.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "number.h"

enum { SCHEME_BYTES = 24 };

/* FEC attributes: the defaults of FDT-Instance, which a File overrides. */
struct oti {
    bool has[5];
    uint64_t value[5]; /* in the order of oti_names */
    char scheme[SCHEME_BYTES];
};
enum { OTI_ENCODING, OTI_INSTANCE, OTI_BLOCK, OTI_SYMBOL, OTI_N };
static const char *const oti_names[5] = {
    "FEC-OTI-FEC-Encoding-ID", "FEC-OTI-FEC-Instance-ID", "FEC-OTI-Maximum-Source-Block-Length",
    "FEC-OTI-Encoding-Symbol-Length", "FEC-OTI-Max-Number-of-Encoding-Symbols"};

struct reader {
    XML_Parser parser;
    struct fcast_fdt *out;
    struct oti oti;
    const char *wrong;
    unsigned depth;
};

static const char *stop(struct reader *r, const char *why)
{
    if (!r->wrong)
        r->wrong = why;
    XML_StopParser(r->parser, XML_FALSE);
    return why;
}

/* Returns the name without its namespace prefix. */
static const char *local(const char *name)
{
    const char *colon = strrchr(name, ':');

    return colon ? colon + 1 : name;
}

/* Takes an FEC-OTI attribute. Returns false if it is one and its value is bad. */
static bool take_oti(struct oti *o, const char *name, const char *value)
{
    for (unsigned i = 0; i < 5; i++)
        if (strcmp(name, oti_names[i]) == 0)
            return o->has[i] = fcast_number(value, UINT64_MAX, &o->value[i]);
    if (strcmp(name, "FEC-OTI-Scheme-Specific-Info") == 0) {
        if (strlen(value) >= sizeof o->scheme)
            return false;
        memcpy(o->scheme, value, strlen(value) + 1);
    }
    return true;
}

/* Parses RFC 5170 4.2.4: base64 of seed (32 bits), N1m3 (3), G (5). */
static bool scheme_of_ldpc(const struct oti *o, struct fcast_fti *f)
{
    uint8_t bytes[SCHEME_BYTES];

    if (strlen(o->scheme) != 8 || EVP_DecodeBlock(bytes, (const uint8_t *)o->scheme, 8) < 5)
        return false;
    f->seed = (uint32_t)get_be(bytes, 4);
    f->n1 = (uint8_t)((bytes[4] >> 5) + 3);
    return (bytes[4] & 31) <= 1;
}

static void settle_fti(const struct oti *o, struct fcast_fdt_file *file)
{
    struct fcast_fti f = {.fec = (uint8_t)o->value[OTI_ENCODING],
                          .length = file->transfer_length,
                          .symbol_bytes = (uint16_t)o->value[OTI_SYMBOL],
                          .block_max = (uint32_t)o->value[OTI_BLOCK],
                          .n_max = (uint32_t)o->value[OTI_N]};

    if (!o->has[OTI_ENCODING] || !o->has[OTI_SYMBOL] || !o->has[OTI_BLOCK] ||
        o->value[OTI_ENCODING] > UINT8_MAX || o->value[OTI_SYMBOL] > UINT16_MAX ||
        o->value[OTI_BLOCK] > UINT32_MAX || o->value[OTI_N] > UINT32_MAX)
        return;
    if (f.fec == FCAST_NO_CODE)
        f.n_max = 0;
    if ((f.fec == FCAST_STAIRCASE || f.fec == FCAST_TRIANGLE) && !scheme_of_ldpc(o, &f))
        return;
    file->fti = f;
    file->has_fti = file->has_transfer_length && fcast_fti_is_good(&f);
}

static bool copy(const char *value, char *out, size_t room)
{
    size_t len = strlen(value);

    if (len >= room)
        return false;
    memcpy(out, value, len + 1);
    return true;
}

/* Takes one attribute of a File. Returns false if it is bad. */
static bool take_file_attribute(struct fcast_fdt_file *f, bool *has_toi, const char *name,
                                const char *value)
{
    struct fcast_meta *m = &f->meta;

    if (strcmp(name, "TOI") == 0)
        return *has_toi = fcast_number(value, UINT64_MAX, &f->toi) && f->toi > 0;
    if (strcmp(name, "Content-Location") == 0)
        return copy(value, m->location, sizeof m->location);
    if (strcmp(name, "Content-Type") == 0)
        return copy(value, m->type, sizeof m->type);
    if (strcmp(name, "Content-Encoding") == 0)
        return copy(value, m->encoding, sizeof m->encoding);
    if (strcmp(name, "Content-Length") == 0)
        return m->has_length = fcast_number(value, UINT64_MAX, &m->length);
    if (strcmp(name, "Transfer-Length") == 0)
        return f->has_transfer_length = fcast_number(value, UINT64_MAX, &f->transfer_length);
    return true;
}

static void start_file(struct reader *r, const char **attributes)
{
    struct fcast_fdt *fdt = r->out;
    struct oti oti = r->oti;
    bool has_toi = false;

    if (fdt->count == FCAST_FDT_FILES_MAX) {
        stop(r, "more files than can be kept");
        return;
    }
    if ((fdt->count & (fdt->count - 1)) == 0) {
        struct fcast_fdt_file *more =
            reallocarray(fdt->files, fdt->count ? 2 * fdt->count : 1, sizeof *more);
        if (!more) {
            stop(r, "no memory");
            return;
        }
        fdt->files = more;
    }
    struct fcast_fdt_file *f = &fdt->files[fdt->count];
    *f = (struct fcast_fdt_file){0};
    for (; *attributes; attributes += 2) {
        const char *name = local(attributes[0]);
        if (!take_file_attribute(f, &has_toi, name, attributes[1]) ||
            !take_oti(&oti, name, attributes[1])) {
            stop(r, "an attribute of a File");
            return;
        }
    }
    if (!has_toi || !f->meta.location[0]) {
        stop(r, "a File without TOI or Content-Location");
        return;
    }
    if (!f->has_transfer_length && f->meta.has_length && !f->meta.encoding[0]) {
        f->transfer_length = f->meta.length;
        f->has_transfer_length = true;
    }
    settle_fti(&oti, f);
    fdt->count++;
}

static void start(void *ctx, const char *name, const char **attributes)
{
    struct reader *r = ctx;

    if (r->depth++ == 0) {
        if (strcmp(local(name), "FDT-Instance") != 0) {
            stop(r, "the root is not an FDT-Instance");
            return;
        }
        for (; *attributes; attributes += 2) {
            const char *one = local(attributes[0]), *value = attributes[1];
            if (strcmp(one, "Expires") == 0 && !fcast_number(value, UINT64_MAX, &r->out->expires))
                stop(r, "Expires");
            if (strcmp(one, "Complete") == 0)
                r->out->complete = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
            if (!take_oti(&r->oti, one, value))
                stop(r, "an attribute of FDT-Instance");
        }
    } else if (r->depth == 2 && strcmp(local(name), "File") == 0) {
        start_file(r, attributes);
    }
}

static void end(void *ctx, const char *name)
{
    struct reader *r = ctx;

    (void)name;
    r->depth--;
}

static void doctype(void *ctx, const char *name, const char *system, const char *public, int has)
{
    (void)name;
    (void)system;
    (void)public;
    (void)has;
    stop(ctx, "a document type, which is not needed");
}

const char *fcast_fdt_get(const uint8_t *bytes, size_t len, struct fcast_fdt *out, char why[128])
{
    struct reader r = {.out = out, .parser = XML_ParserCreate(NULL)};

    *out = (struct fcast_fdt){0};
    if (!r.parser || len > FCAST_FDT_BYTES_MAX) {
        XML_ParserFree(r.parser);
        snprintf(why, 128, "%s", r.parser ? "longer than an FDT may be" : "no memory");
        return why;
    }
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, start, end);
    XML_SetStartDoctypeDeclHandler(r.parser, doctype);
    bool good = XML_Parse(r.parser, (const char *)bytes, (int)len, XML_TRUE) == XML_STATUS_OK;
    if (!good)
        snprintf(why, 128, "line %lu: %s", (unsigned long)XML_GetCurrentLineNumber(r.parser),
                 r.wrong ? r.wrong : XML_ErrorString(XML_GetErrorCode(r.parser)));
    XML_ParserFree(r.parser);
    if (good)
        return NULL;
    fcast_fdt_free(out);
    return why;
}

void fcast_fdt_free(struct fcast_fdt *fdt)
{
    free(fdt->files);
    *fdt = (struct fcast_fdt){0};
}
