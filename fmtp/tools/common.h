/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line values of fmtp-send and fmtp-recv. Every function quotes the offending text and
 * what would be valid, and exits with 2 (bad usage).
 */
#ifndef FMTP_TOOLS_COMMON_H
#define FMTP_TOOLS_COMMON_H

#include "fmtp.h"
#include "tool/command.h"

/* Where a rate is needed and none is set: faster than what the machine will do. */
#define FMTP_UNLIMITED_BPS UINT64_C(10000000000)
enum { FEEDS_MAX = 64 };

struct sockaddr_storage parse_endpoint(const char *option, const char *text); /* IP:PORT */
/* Bit/s, or 0 for "unlimited". */
uint64_t parse_rate(const char *option, const char *text);
/* "unicast" is true, "multicast" false. */
/* A number above 0. */
double parse_factor(const char *option, const char *text);
/* 2017 or 2021. */
enum fmtp_layout parse_layout(const char *text);

/* Options that both programs have. A program's own begin at OPTION_OWN. */
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
/* Puts what `o` says into a configuration; those of servers and of clients name it alike. */
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
 * 0. */
void take_common_option(struct common_options *o, int option, const char *usage);

/* The product index that comes next, kept in a file of one line "next_index N"; 0 if there is none.
 * Exit with 2 if it is something else, with 1 if it cannot be written. */
uint32_t read_state(const char *path);
/* Replaces the file, by a temporary one and rename. */
void write_state(const char *path, uint32_t next_index);

/* A file name made of what the sender called the product: the last path component, without
 * control characters, not hidden, not empty. out has room for 256 bytes. */
void safe_name(const void *meta, size_t meta_len, uint32_t index, char *out);

#endif
