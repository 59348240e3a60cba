/* SPDX-License-Identifier: Apache-2.0 */
/* How many files a process may have open. */
#ifndef COMMON_FILE_LIMIT_H
#define COMMON_FILE_LIMIT_H

#include <stddef.h>

/* Sets the soft limit of open files to `files`, or to the hard limit if that is lower. Returns the
 * new limit; 0: unknown. */
size_t file_limit_set(size_t files);

#endif
