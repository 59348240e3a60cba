/* SPDX-License-Identifier: Apache-2.0
 *
 * What fcast-send and fcast-recv share: values of options, key files, session files, messages.
 * Every function that finds a bad value quotes it and what would be valid, and exits with 2.
 */
#ifndef FCAST_TOOLS_OPTIONS_H
#define FCAST_TOOLS_OPTIONS_H

#include "fcast.h"
#include "net/address.h"
#include "net/key_file.h"

enum { FCAST_EXIT_USAGE = 2 };

extern const char *fcast_program;

void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));       /* 1 */
void fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); /* 2 */

/* A whole number between min and max, with an optional k, M or G (1000, 10^6, 10^9). */
uint64_t option_number(const char *option, const char *text, uint64_t min, uint64_t max);
struct sockaddr_storage option_address(const char *option, const char *text);  /* no port */
struct sockaddr_storage option_endpoint(const char *option, const char *text); /* IP:PORT */
/* The place of text among count words. */
int option_word(const char *option, const char *text, const char *const *words, int count);
/* The key in a file that only its owner may read. */
void option_key(const char *path, uint8_t key[TP_KEY_BYTES]);

/* A session file (SDP): what a receiver must know. */
struct session {
    struct sockaddr_storage group, source; /* source: family 0 if it is not said */
    bool has_tsi;
    uint64_t tsi;
    enum fcast_protocol protocol;
};
void session_read(const char *path, struct session *out);
void session_write(const char *path, const struct session *s, unsigned ttl);

/* SIGINT and SIGTERM set it after catch_signals(). */
extern volatile int stop_requested;
void catch_signals(void);

#endif
