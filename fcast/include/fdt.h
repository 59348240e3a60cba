/* SPDX-License-Identifier: Apache-2.0
 *
 * FLUTE's File Delivery Table (RFC 6726): an XML document that lists a session's files. Object 0
 * carries it, in numbered instances.
 */
#ifndef FCAST_FDT_H
#define FCAST_FDT_H

#include "fti.h"
#include "object.h"

enum { FCAST_FDT_BYTES_MAX = 1 << 20, FCAST_FDT_FILES_MAX = 4096 };

struct fcast_fdt_file {
    uint64_t toi;
    bool has_transfer_length, has_fti;
    uint64_t transfer_length;
    struct fcast_fti fti; /* valid if has_fti: complete, with that transfer length */
    struct fcast_meta meta;
};
struct fcast_fdt {
    uint64_t expires; /* NTP seconds; 0: none */
    bool complete;    /* no other files will follow */
    unsigned count;
    struct fcast_fdt_file *files;
};

/* Reads an instance. Refuses a document type declaration, more than FCAST_FDT_FILES_MAX files, and
 * a file without TOI or Content-Location: then returns NULL, and `why` gives the reason. Free the
 * result with fcast_fdt_free(). */
const char *fcast_fdt_get(const uint8_t *bytes, size_t len, struct fcast_fdt *out, char why[128]);
void fcast_fdt_free(struct fcast_fdt *fdt);
/* Writes an instance and returns its length; 0 if there is no room. */
size_t fcast_fdt_put(char *out, size_t room, const struct fcast_fdt *fdt);

/* EXT_FDT (RFC 6726 3.4.1): FLUTE version 2 and 20 bits of instance ID, without the type. */
bool fcast_ext_fdt_get(const uint8_t *content, size_t len, unsigned *version, uint32_t *instance);
void fcast_ext_fdt_put(uint8_t out[3], uint32_t instance);

#endif
