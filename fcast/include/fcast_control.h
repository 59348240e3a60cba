/* SPDX-License-Identifier: Apache-2.0
 *
 * Fcast for programs: Init, Start, Stop and GetStats, like the controls of MSR-TR-99-14, Appendix
 * A. Each start creates a thread; the calls do not wait for the network. Make calls for one sender
 * or receiver from one thread at a time. Its thread calls your functions, which must not stop or
 * free it.
 *
 * Link with -ldownpour-fcast (pkg-config downpour-fcast). See fcast_control(3).
 */
#ifndef FCAST_CONTROL_H
#define FCAST_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FCAST_CONTROL_WHY = 256 };

enum fcast_control_protocol {
    FCAST_CONTROL_FCAST, /* RFC 6968 */
    FCAST_CONTROL_FLUTE, /* RFC 6726 */
    FCAST_CONTROL_SEED   /* the packets of 1999 */
};

/* ------------------------------------------------------------------ sending side */

/* Options of a sender. Zeroes are the defaults. */
struct fcast_tx_options {
    enum fcast_control_protocol protocol;
    const char *interface_address; /* NULL: the routing table decides */
    const char *cache_folder;      /* for repair symbols; NULL: /var/tmp */
    void *ctx;
    void (*on_complete)(void *ctx); /* redundancy has been reached */
};

struct fcast_tx_stats {
    uint64_t sent, rounds, index; /* datagrams; whole cycles; index of the symbol in this cycle */
    bool is_complete;             /* redundancy has been reached */
    uint64_t errors;              /* failed reads and sends */
};

struct fcast_tx;

/* Makes a sender for a group, port, time to live and rate, which includes all headers. Copies the
 * options. Returns NULL with why: an invalid address, or out of memory. */
struct fcast_tx *fcast_tx_init(const char *address, uint16_t port, uint8_t ttl,
                               uint64_t bytes_per_s, const struct fcast_tx_options *options,
                               char why[FCAST_CONTROL_WHY]);
/* Sends the file until fcast_tx_stop(); with redundancy > 0, until it has sent 1 + redundancy times
 * as many symbols as the file has. Returns -1 with why. */
int fcast_tx_start(struct fcast_tx *tx, const char *file, double redundancy,
                   char why[FCAST_CONTROL_WHY]);
/* Ends the session and the thread; another file may then be started. */
void fcast_tx_stop(struct fcast_tx *tx);
void fcast_tx_get_stats(struct fcast_tx *tx, struct fcast_tx_stats *out);
/* Stops the sender if necessary, and frees it. */
void fcast_tx_free(struct fcast_tx *tx);

/* ------------------------------------------------------------------ receiving side */

/* Options of a receiver. Zeroes are the defaults. */
struct fcast_rx_options {
    enum fcast_control_protocol protocol;
    const char *interface_address; /* NULL: the routing table decides */
    bool is_satellite;             /* keep running, and receive one session after another */
    uint64_t max_object_bytes;     /* refuse larger files (64 GiB) */
    uint64_t max_unpacked_bytes;   /* limit of a gzip-encoded file (4 GiB) */
    void *ctx;
    /* Each may be NULL. bytes: including the headers of its protocol. */
    void (*on_file_start)(void *ctx, uint64_t id, uint64_t bytes);
    void (*on_file_complete)(void *ctx, uint64_t id, const char *name, uint64_t bytes);
    void (*on_complete)(void *ctx); /* all files are complete; it has left the group */
    void (*on_error)(void *ctx, const char *text);       /* the receiver continues */
    void (*on_fatal_error)(void *ctx, const char *text); /* the receiver has ended */
};

struct fcast_rx_stats {
    uint64_t received, lost, redundant, out_of_order; /* datagrams of the session */
    uint64_t stray;   /* datagrams of other sessions, or malformed */
    uint64_t dropped; /* dropped by this host: its receive buffer was full */
    uint64_t decoded; /* blocks completed by repair symbols */
    uint64_t files_started, files_received,
        files_done;         /* received: all symbols; done: in the folder */
    uint64_t payload_bytes; /* of each datagram */
};

struct fcast_rx;

/* Makes a receiver for a group, a port and a folder for the files. Returns NULL with why. */
struct fcast_rx *fcast_rx_init(const char *address, uint16_t port, const char *folder,
                               const struct fcast_rx_options *options, char why[FCAST_CONTROL_WHY]);
/* Joins the group; files appear in the folder when complete. Returns -1 with why. */
int fcast_rx_start(struct fcast_rx *rx, char why[FCAST_CONTROL_WHY]);
/* Leaves the group; incomplete files remain in the folder's .fcast for the next start. */
void fcast_rx_stop(struct fcast_rx *rx);
void fcast_rx_get_stats(struct fcast_rx *rx, struct fcast_rx_stats *out);
/* Stops the receiver if necessary, and frees it. */
void fcast_rx_free(struct fcast_rx *rx);

#ifdef __cplusplus
}
#endif

#endif
