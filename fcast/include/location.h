/* SPDX-License-Identifier: Apache-2.0
 *
 * Content-Location (a URI) and the name of a file.
 */
#ifndef FCAST_LOCATION_H
#define FCAST_LOCATION_H

#include <stdbool.h>
#include <stddef.h>

/* The path in a URI, without scheme and host, its escapes decoded. It may lead out of a directory.
 * false: it has a NUL or an invalid escape, or there is no room. */
bool fcast_location_get(const char *location, char *out, size_t room);
/* The URI of a relative path. false: no room. */
bool fcast_location_put(const char *path, char *out, size_t room);

#endif
