/* SPDX-License-Identifier: Apache-2.0
 *
 * What fcast-send and fcast-recv share: values of options, key files, session files. A function
 * that finds a bad value quotes it, says what would be valid, and exits with code 2.
 */
#ifndef FCAST_TOOLS_OPTIONS_H
#define FCAST_TOOLS_OPTIONS_H

#include "fcast.h"
#include "net/key_file.h"
#include "tool/command.h"

struct sockaddr_storage option_endpoint(const char *option, const char *text); /* IP:PORT */
/* Returns the index of text among `count` words. */
int option_word(const char *option, const char *text, const char *const *words, int count);
/* Parses fcast, flute or seed. */
enum fcast_protocol option_protocol(const char *text);
/* Parses a Reed-Solomon code: rfc5510, rizzo or flute. */
int option_variant(const char *text);
/* Reads the key from a file that only its owner may read. */
void option_key(const char *path, uint8_t key[TP_KEY_BYTES]);

/* A session file (SDP): what a receiver must know. */
struct session {
    struct sockaddr_storage group, source; /* source: family 0 if not given */
    bool has_tsi;
    uint64_t tsi;
    enum fcast_protocol protocol;
};
void session_read(const char *path, struct session *out);
void session_write(const char *path, const struct session *s, unsigned ttl);

#endif
