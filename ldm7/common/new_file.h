/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces a small file atomically: writes a temporary file beside it, then renames it. If writing
 * fails, the old file stays.
 */
#ifndef LDM_NEW_FILE_H
#define LDM_NEW_FILE_H

#include <stdio.h>

struct new_file {
    FILE *stream; /* write to it */
    const char *path;
    char temporary[4200];
};

/* path belongs to the caller and must remain valid. Returns -1 with errno on failure. */
int new_file_begin(struct new_file *n, const char *path);
/* Call this after new_file_begin() returned 0. Returns -1 if the file was not replaced, because a
 * write, the close or the rename failed. */
int new_file_end(struct new_file *n);

#endif
