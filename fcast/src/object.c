/* SPDX-License-Identifier: Apache-2.0 */
#include "object.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "bytes.h"
#include "number.h"

enum { VERSION_MASK = 0xe0, FLAG_G = 2, FLAG_C = 1, LINE_MAX_BYTES = 2048, BASE64_DIGEST = 44 };

/* Computes the checksum of RFC 1071 over bytes whose checksum field counts as zero. */
static uint16_t checksum(const uint8_t *bytes, size_t len)
{
    uint64_t sum = 0;

    for (size_t i = 0; i + 1 < len; i += 2)
        if (i != 2)
            sum += (uint64_t)bytes[i] << 8 | bytes[i + 1];
    if (len & 1)
        sum += (uint64_t)bytes[len - 1] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static size_t padded(uint64_t len, uint64_t object)
{
    return (size_t)(len < object ? (len + 3) / 4 * 4 : len);
}

size_t fcast_object_header_len(const uint8_t fixed[FCAST_OBJECT_FIXED], uint64_t object)
{
    uint64_t len = get_be(fixed + 4, 4);

    if (fixed[0] & VERSION_MASK || len < FCAST_OBJECT_FIXED || len > FCAST_OBJECT_HEADER_MAX ||
        len > object)
        return 0;
    size_t whole = padded(len, object);
    return whole <= object ? whole : 0;
}

static bool get_digest(const char *text, uint8_t out[FCAST_DIGEST])
{
    uint8_t bytes[BASE64_DIGEST / 4 * 3];

    if (strlen(text) != BASE64_DIGEST || text[BASE64_DIGEST - 1] != '=' ||
        EVP_DecodeBlock(bytes, (const uint8_t *)text, BASE64_DIGEST) != sizeof bytes)
        return false;
    memcpy(out, bytes, FCAST_DIGEST);
    return true;
}

static bool get_text(const char *value, char *out, size_t room)
{
    size_t len = strlen(value);

    if (len >= room)
        return false;
    memcpy(out, value, len + 1);
    return true;
}

/* Returns why the item is bad, or NULL. Ignores unknown items. */
static const char *take_item(const char *name, const char *value, struct fcast_meta *m)
{
    uint64_t n;

    if (strcasecmp(name, "Content-Location") == 0)
        return get_text(value, m->location, sizeof m->location) ? NULL : "Content-Location";
    if (strcasecmp(name, "Content-Type") == 0)
        return get_text(value, m->type, sizeof m->type) ? NULL : "Content-Type";
    if (strcasecmp(name, "Content-Encoding") == 0)
        return get_text(value, m->encoding, sizeof m->encoding) ? NULL : "Content-Encoding";
    if (strcasecmp(name, "Content-Length") == 0)
        return (m->has_length = fcast_number(value, UINT64_MAX, &m->length)) ? NULL
                                                                             : "Content-Length";
    if (strcasecmp(name, "Fcast-Obj-Digest-SHA256") == 0)
        return (m->has_digest = get_digest(value, m->digest)) ? NULL : "Fcast-Obj-Digest-SHA256";
    if (strcasecmp(name, "Fcast-Obj-Slice-Nb") == 0) {
        m->is_slice = fcast_number(value, UINT32_MAX, &n) && n > 1;
    } else if (strcasecmp(name, "Fcast-CID-Complete") == 0) {
        if (!fcast_number(value, 1, &n))
            return "Fcast-CID-Complete";
        m->cid_complete = n;
    } else if (strcasecmp(name, "Fcast-CID-ID") == 0) {
        if (!fcast_number(value, UINT32_MAX, &n))
            return "Fcast-CID-ID";
        m->cid_id = (uint32_t)n;
    }
    return NULL;
}

/* Parses `Name: value` lines that end with CRLF or LF. */
static const char *take_metadata(const uint8_t *at, size_t left, struct fcast_meta *m)
{
    char line[LINE_MAX_BYTES];

    while (left) {
        const uint8_t *end = memchr(at, '\n', left);
        size_t len = end ? (size_t)(end - at) : left, whole = end ? len + 1 : len;
        if (len && at[len - 1] == '\r')
            len--;
        if (len >= sizeof line || memchr(at, '\0', len))
            return "metadata";
        memcpy(line, at, len);
        line[len] = '\0';
        at += whole;
        left -= whole;
        if (!len)
            continue;
        char *colon = strchr(line, ':');
        if (!colon)
            return "metadata without a colon";
        *colon = '\0';
        const char *wrong = take_item(line, colon + 1 + strspn(colon + 1, " \t"), m);
        if (wrong)
            return wrong;
    }
    return NULL;
}

const char *fcast_object_header_get(const uint8_t *bytes, size_t len, uint64_t object,
                                    struct fcast_object_header *out)
{
    *out = (struct fcast_object_header){0};
    if (len < FCAST_OBJECT_FIXED)
        return "shorter than a header";
    out->len = fcast_object_header_len(bytes, object);
    if (!out->len || out->len > len)
        return "version or length of the header";
    size_t exact = (size_t)get_be(bytes + 4, 4);
    out->is_cid = bytes[0] & FLAG_C;
    out->covers_data = bytes[0] & FLAG_G;
    out->checksum = (uint16_t)get_be(bytes + 2, 2);
    out->meta.is_cid = out->is_cid;
    if (bytes[1] >> 4)
        return "format of the metadata; only HTTP/1.1 is known";
    if (bytes[1] & 15)
        return "encoding of the metadata; only UTF-8 is known";
    if (!out->covers_data && checksum(bytes, exact) != out->checksum)
        return "checksum of the header";
    return take_metadata(bytes + FCAST_OBJECT_FIXED, exact - FCAST_OBJECT_FIXED, &out->meta);
}

static size_t put_digest(char *out, size_t room, const uint8_t digest[FCAST_DIGEST])
{
    uint8_t text[BASE64_DIGEST + 1];

    EVP_EncodeBlock(text, digest, FCAST_DIGEST);
    int n = snprintf(out, room, "Fcast-Obj-Digest-SHA256: %s\r\n", (char *)text);
    return (size_t)n;
}

size_t fcast_object_header_put(uint8_t *out, size_t room, const struct fcast_meta *m, bool is_empty)
{
    char text[4096];
    size_t n = 0;

    if (m->is_cid) {
        n += (size_t)snprintf(text, sizeof text, "Fcast-CID-Complete: %d\r\nFcast-CID-ID: %u\r\n",
                              m->cid_complete, m->cid_id);
    } else {
        n += (size_t)snprintf(text, sizeof text, "Content-Location: %s\r\n", m->location);
        if (m->type[0])
            n += (size_t)snprintf(text + n, sizeof text - n, "Content-Type: %s\r\n", m->type);
        if (m->encoding[0])
            n += (size_t)snprintf(text + n, sizeof text - n, "Content-Encoding: %s\r\n",
                                  m->encoding);
        if (m->has_digest)
            n += put_digest(text + n, sizeof text - n, m->digest);
    }
    if (m->has_length)
        n += (size_t)snprintf(text + n, sizeof text - n, "Content-Length: %llu\r\n",
                              (unsigned long long)m->length);
    size_t exact = FCAST_OBJECT_FIXED + n;
    size_t whole = is_empty ? exact : padded(exact, UINT64_MAX);
    if (whole > room)
        return 0;
    memset(out, 0, whole);
    out[0] = m->is_cid ? FLAG_C : 0;
    put_be(out + 4, exact, 4);
    memcpy(out + FCAST_OBJECT_FIXED, text, n);
    put_be(out + 2, checksum(out, exact), 2);
    return whole;
}
