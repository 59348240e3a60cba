/* SPDX-License-Identifier: Apache-2.0
 *
 * Where products go: files and pipes that stay open from one product to the next. At most a given
 * number; the one not used for longest makes room.
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
    struct output *list; /* newest use first */
    unsigned n, max;
    struct datadir *dir;
    struct commands *commands;
};

/* No outputs yet; dir and commands must stay. */
void outputs_init(struct outputs *o, unsigned max, struct datadir *dir, struct commands *commands);
/* Writes what is buffered and closes everything. */
void outputs_free(struct outputs *o);
/* Writes what is buffered to files. */
void outputs_flush(struct outputs *o);

/* If there are as many children as there may be, closes the pipe not used for longest, so that its
 * program ends. */
void outputs_make_room(struct outputs *o);
/* The output for this key, opened if it is not. key: for files the path, for pipes the words, each
 * with its NUL (argv is what they are). NULL and a reason. */
struct output *output_get(struct outputs *o, enum output_kind kind, const char *key,
                          size_t key_bytes, char *const *argv, char *err, size_t err_bytes);
/* True if the last output_get opened it. */
bool output_is_new(const struct output *out);
/* All of it, or false with errno: EPIPE: the program at the other end is gone; ETIMEDOUT: it does
 * not read and has been killed. After an error the output must be closed. */
bool output_write(struct outputs *o, struct output *out, const void *data, size_t bytes);
/* Writes what is buffered into the file (OUTPUT_BUFFERED) and onto the disk. */
bool output_sync(struct outputs *o, struct output *out);
/* false: what was buffered could not be written. */
bool output_close(struct outputs *o, struct output *out);

#endif
