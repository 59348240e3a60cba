/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes allocations fail on purpose. Link a test that uses this with FAILING_MEMORY_LINK of the
 * root's meson.build; it affects the libraries under test, not shared ones.
 */
#ifndef FAILING_MEMORY_H
#define FAILING_MEMORY_H

#include <stdbool.h>

/* Makes only the nth allocation from now on fail; 0: none. */
void memory_fails_at(unsigned n);
/* Returns whether an allocation has failed since then. No later allocation fails. */
bool memory_failed(void);

#endif
