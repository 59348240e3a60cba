/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the places.
 */
#ifndef FCAST_TOOLS_PLACE_IMPL_H
#define FCAST_TOOLS_PLACE_IMPL_H

#include "place.h"

enum { PLACE_NAME_BYTES = 32 };

/* Removes the files of an incomplete object. (leftovers.c) */
void place_remove_parts(const struct places *p, const char *name);

#endif
