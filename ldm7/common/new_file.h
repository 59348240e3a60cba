/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a small file so that others see the old one or the whole new one: a temporary file
 * beside it, then rename. A write that failed leaves the old one.
 */
#ifndef LDM_NEW_FILE_H
#define LDM_NEW_FILE_H

#include <stdio.h>

struct new_file {
    FILE *stream; /* write to it */
    const char *path;
    char temporary[4200];
};

/* path stays the caller's and must stay valid. -1: errno. */
int new_file_begin(struct new_file *n, const char *path);
/* To be called after new_file_begin() gave 0. -1: not replaced, as a write, the close or the rename
 * failed. */
int new_file_end(struct new_file *n);

#endif
