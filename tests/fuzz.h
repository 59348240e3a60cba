/* SPDX-License-Identifier: Apache-2.0
 *
 * A fuzz target: one function over arbitrary bytes; returns 0, must not crash, leak or hang.
 * libFuzzer (-Dfuzz=true) or fuzz_replay.c provides main().
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The fuzz target. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
