/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line values of fmtp-send and fmtp-recv. A function that finds a bad value quotes it, says
 * what would be valid, and exits with code 2 (bad usage).
 */
#ifndef FMTP_TOOLS_COMMON_H
#define FMTP_TOOLS_COMMON_H

#include "fmtp.h"
#include "tool/command.h"

/* Used where a rate is needed and none is set: faster than any machine sends. */
#define FMTP_UNLIMITED_BPS UINT64_C(10000000000)
enum { FEEDS_MAX = 64 };

struct sockaddr_storage parse_endpoint(const char *option, const char *text); /* IP:PORT */
/* Parses bit/s; 0 for "unlimited". */
uint64_t parse_rate(const char *option, const char *text);
/* Parses "unicast" (true) or "multicast" (false). */
/* Parses a number above 0. */
double parse_factor(const char *option, const char *text);
/* Parses 2017 or 2021. */
enum fmtp_layout parse_layout(const char *text);

/* Options of both programs. A program's own begin at OPTION_OWN. */
struct common_options {
    enum fmtp_layout layout;
    unsigned mac_level; /* FMTP_MAC_AUTO: the default */
    unsigned pdu_bytes; /* 0: the default */
    bool unicast_repair, no_parity, no_sandbox, has_key;
    uint8_t key[FMTP_KEY_BYTES];
    const char *congestion_control; /* NULL: the system's */
    struct qlog *qlog;              /* NULL: none */
};
enum {
    OPTION_LAYOUT = 1,
    OPTION_MAC,
    OPTION_PDU,
    OPTION_REPAIR,
    OPTION_CONGESTION_CONTROL,
    OPTION_NO_SANDBOX,
    OPTION_QLOG,
    OPTION_KEY_FILE,
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_OWN
};
/* clang-format off */
#define COMMON_OPTIONS                                                                             \
    {"layout", required_argument, NULL, OPTION_LAYOUT}, {"mac", required_argument, NULL, OPTION_MAC}, \
    {"pdu", required_argument, NULL, OPTION_PDU}, {"repair", required_argument, NULL, OPTION_REPAIR}, \
    {"congestion-control", required_argument, NULL, OPTION_CONGESTION_CONTROL},                    \
    {"no-sandbox", no_argument, NULL, OPTION_NO_SANDBOX},                                         \
    {"qlog", required_argument, NULL, OPTION_QLOG}, {"key-file", required_argument, NULL, OPTION_KEY_FILE},                                        \
    {"help", no_argument, NULL, OPTION_HELP}, {"version", no_argument, NULL, OPTION_VERSION}
/* clang-format on */
#define COMMON_OPTIONS_DEFAULT                                 \
    {                                                          \
        .layout = FMTP_LAYOUT_2021, .mac_level = FMTP_MAC_AUTO \
    }
/* Copies the options to a configuration; servers' and clients' configurations use the same
 * names. */
#define COMMON_OPTIONS_TO(cfg, o)                          \
    do {                                                   \
        (cfg).layout = (o).layout;                         \
        (cfg).mac_level = (o).mac_level;                   \
        (cfg).has_key = (o).has_key;                       \
        memcpy((cfg).key, (o).key, sizeof(cfg).key);       \
        (cfg).pdu_bytes = (o).pdu_bytes;                   \
        (cfg).unicast_repair = (o).unicast_repair;         \
        (cfg).congestion_control = (o).congestion_control; \
    } while (0)
/* Takes one of COMMON_OPTIONS with its value in optarg. --help and --version end the program with
 * exit code 0. */
void take_common_option(struct common_options *o, int option, const char *usage);

/* Reads the next product index from a file with one line "next_index N"; 0 if there is no file.
 * Exits with code 2 if it has other content. */
uint32_t read_state(const char *path);
/* Replaces the file, by a temporary one and rename. Exits with code 1 if that fails. */
void write_state(const char *path, uint32_t next_index);

/* Makes a file name from the sender's name of the product: the last path component, without control
 * characters, not hidden, not empty. out has room for 256 bytes. */
void safe_name(const void *meta, size_t meta_len, uint32_t index, char *out);

#endif
