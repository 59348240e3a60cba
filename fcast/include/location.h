/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts between Content-Location (a URI) and the name of a file.
 */
#ifndef FCAST_LOCATION_H
#define FCAST_LOCATION_H

#include <stdbool.h>
#include <stddef.h>

/* Extracts the path from a URI, without scheme and host and with its escapes decoded. The path may
 * lead out of a directory. Returns false if it has a NUL or an invalid escape, or if there is no
 * room. */
bool fcast_location_get(const char *location, char *out, size_t room);
/* Makes the URI of a relative path. Returns false if there is no room. */
bool fcast_location_put(const char *path, char *out, size_t room);

#endif
