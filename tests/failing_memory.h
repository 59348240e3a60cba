/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations that fail on purpose. A test that uses this is linked with FAILING_MEMORY_LINK of the
 * root's meson.build; it affects the libraries under test, not shared ones.
 */
#ifndef FAILING_MEMORY_H
#define FAILING_MEMORY_H

#include <stdbool.h>

/* The nth allocation from now fails, and that one alone; 0: none does. */
void memory_fails_at(unsigned n);
/* True if it has failed meanwhile. Ends the failing. */
bool memory_failed(void);

#endif
