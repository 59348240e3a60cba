/* SPDX-License-Identifier: Apache-2.0
 *
 * Where products go: files and pipes that stay open from one product to the next. Their number is
 * limited; the least recently used one makes room.
 */
#ifndef PQACT_OUTPUTS_H
#define PQACT_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "command.h"
#include "datadir.h"

enum output_kind { OUTPUT_FILE, OUTPUT_BUFFERED, OUTPUT_PIPE };

struct output;
struct outputs {
    struct output *list; /* most recently used first */
    unsigned n, max;
    struct datadir *dir;
    struct commands *commands;
};

/* Initializes without outputs; dir and commands must outlive it. */
void outputs_init(struct outputs *o, unsigned max, struct datadir *dir, struct commands *commands);
/* Writes what is buffered and closes everything. */
void outputs_free(struct outputs *o);
/* Writes what is buffered to files. */
void outputs_flush(struct outputs *o);

/* If the maximum number of children is running, closes the least recently used pipe, so that its
 * program ends. */
void outputs_make_room(struct outputs *o);
/* Returns the output for this key, opening it if necessary. key: for files the path, for pipes the
 * words, each with its NUL (argv lists them). Returns NULL and a reason on failure. */
struct output *output_get(struct outputs *o, enum output_kind kind, const char *key,
                          size_t key_bytes, char *const *argv, char *err, size_t err_bytes);
/* Returns whether the last output_get() opened it. */
bool output_is_new(const struct output *out);
/* Writes everything. Returns false with errno: EPIPE: the program at the other end is gone;
 * ETIMEDOUT: it does not read and was killed. After an error the output must be closed. */
bool output_write(struct outputs *o, struct output *out, const void *data, size_t bytes);
/* Writes what is buffered to the file (OUTPUT_BUFFERED) and to disk. */
bool output_sync(struct outputs *o, struct output *out);
/* Returns false if what was buffered could not be written. */
bool output_close(struct outputs *o, struct output *out);

#endif
