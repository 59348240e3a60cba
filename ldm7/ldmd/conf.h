/* SPDX-License-Identifier: Apache-2.0
 *
 * ldmd.conf (LDM-6.15.0, LDM-6.13.17; docs/reference/contracts.md). Keyword in the first column,
 * case-insensitive; fields separated by blanks, optionally in double quotes with \" inside; #
 * begins a comment.
 */
#ifndef LDMD_CONF_H
#define LDMD_CONF_H

#include <stdio.h>

#include "match.h"

#define CONF_TEXT 256
#define CONF_SERVICES 512 /* bytes of a list of path services */

struct conf_exec {
    char **argv;
}; /* by words_split */
struct conf_request {
    uint32_t feed;
    char ere[CONF_TEXT], host[CONF_TEXT];
    uint16_t port;
};
struct conf_allow {
    uint32_t feed;
    char host_ere[CONF_TEXT];
    struct ere *host, *ok, *unless; /* ok, unless: NULL if missing */
};
struct conf_accept {
    uint32_t feed;
    char ere[CONF_TEXT], host_ere[CONF_TEXT];
    struct ere *host;
};
struct conf_multicast {
    uint32_t feed;
    struct sockaddr_in group;
    struct in_addr fmtp_addr; /* NIC1 of the publisher; 0.0.0.0: any (short form) */
    uint16_t fmtp_port;       /* 0: the system chooses */
    uint8_t subnet_len;       /* of its subnet, for subscribers with a VLAN; 0: none */
    uint16_t vlan;
    char switch_id[CONF_TEXT], port_id[CONF_TEXT];
    uint64_t r_mc_bps, path_rate_bps; /* the settings, or the feed's own */
    char key_file[CONF_TEXT];         /* likewise; empty: none */
    char nic[16];         /* likewise; empty: ldmd does not make its interface (lane.h) */
    char file[CONF_TEXT]; /* the file that contains the entry */
    unsigned line;
};
struct conf_receive {
    uint32_t feed;
    char host[CONF_TEXT];
    uint16_t port;
    struct in_addr iface; /* NIC1 of the subscriber; 0.0.0.0: as routed, or: */
    char iface_name[16];  /* its name, if one was given; else empty */
    char switch_id[CONF_TEXT], port_id[CONF_TEXT];
    uint16_t vlan;
    uint64_t r_mc_bps;        /* the setting, or the feed's own */
    char key_file[CONF_TEXT]; /* likewise; empty: none */
};
/* SET name value feedtype: applies to entries whose feed is part of it; the last one wins. */
struct conf_feed_rate {
    uint32_t feed;
    bool is_path;
    uint64_t bps;
};
/* Which products that arrive by LDM6 must match the digest in their signature. */
enum conf_verify {
    VERIFY_NONE,
    VERIFY_PUSHED, /* those that peers push */
    VERIFY_ALL     /* also those that were requested */
};
/* The same for fmtp.key_file and ldm7.nic. */
struct conf_feed_text {
    uint32_t feed;
    bool is_nic;
    char text[CONF_TEXT];
};
#define CONF_MAC_AUTO 3 /* FMTP_MAC_AUTO */
enum conf_repair { CONF_REPAIR_MULTICAST, CONF_REPAIR_BLOCKS, CONF_REPAIR_UNICAST };

struct conf_settings {
    unsigned fmtp_layout;      /* fmtp.layout 2017|2021 (default 2021) */
    double f_snd, f_rcv;       /* fmtp.f_snd (5000), fmtp.f_rcv (20): Table II */
    bool timer_from_bop;       /* fmtp.timer_from bop|eop (eop) */
    bool timer_by_handover;    /* fmtp.timer_by handover|rate (rate) */
    double handover_us;        /* fmtp.handover_us (0), for each datagram */
    bool blocking;             /* fmtp.blocking on|off (off) */
    uint64_t r_mc_bps;         /* fmtp.r_mc_bps (20 Mbit/s) */
    uint64_t b_rcv_bytes;      /* fmtp.b_rcv_bytes (8 MiB) */
    uint64_t b_snd_bytes;      /* fmtp.b_snd_bytes (0: the system's default) */
    uint64_t r_uc_bps;         /* fmtp.r_uc_bps (0: no limit) */
    uint64_t pdu_bytes;        /* fmtp.pdu_bytes (0: 1460, or less if the path requires it) */
    uint64_t held_products;    /* fmtp.held_products (4000; 0: no limit) */
    double held_share;         /* fmtp.held_share (0.5 of the queue; 0: no limit) */
    uint64_t held_s;           /* fmtp.held_s (3600; 0: no limit) */
    uint8_t ttl;               /* fmtp.ttl (1) */
    uint8_t mac_level;         /* fmtp.mac_level auto|0|1|2 (auto) */
    char key_file[CONF_TEXT];  /* fmtp.key_file (empty: none) */
    uint8_t repair;            /* fmtp.repair (multicast), enum conf_repair */
    double max_latency_s;      /* ldm6.max_latency_s (3600): older products are ignored */
    double time_offset_s;      /* ldm6.time_offset_s (max_latency_s): how far back to request */
    bool anti_dos;             /* ldm6.anti_dos 0|1 (1): each product to an address only once */
    uint8_t verify_md5_6;      /* ldm6.verify_md5 0|1|2 (1), enum conf_verify */
    bool verify_md5;           /* ldm7.verify_md5 0|1 (1) */
    bool fallback;             /* ldm7.fallback 0|1 (1): LDM6 while there is no multicast */
    uint64_t dead_s;           /* ldm7.dead_s (60): when a silent host's connection ends */
    uint64_t retry_s;          /* ldm7.retry_s (60): when to retry a refused subscription */
    char nic[16];              /* ldm7.nic (empty): where to make MULTICAST entries' VLANs */
    bool nic_tags;             /* ldm7.nic_tags 0|1 (1); 0: the switch's port tags */
    uint64_t nic_buffer_bytes; /* ldm7.nic_buffer_bytes (600 MB; 0: no traffic control) */
    char vlanutil[CONF_TEXT];  /* ldm7.vlanutil (vlanutil): path, or name in PATH */
    char path_service[CONF_SERVICES]; /* path.service unix:/PATH or URL[,...] (empty: none) */
    char path_name[CONF_TEXT];        /* path.name ({feed}) */
    char path_token_file[CONF_TEXT];  /* path.token_file (empty: none) */
    char path_ca_file[CONF_TEXT];     /* path.ca_file (empty: the system's) */
    uint64_t path_rate_bps;           /* path.rate_bps (CONF_PATH_RATE_AS_FMTP) */
    uint64_t path_timeout_s; /* path.timeout_s (30): how long a subscriber waits for its path */
    uint64_t path_grace_s;   /* path.grace_s (30): how long leaves found at the service are kept */
    bool sandbox;            /* ldmd.sandbox on|off (on): see confine.h */
    bool stats;              /* ldmd.stats on|off (on): see counters.h */
    char congestion_control[16]; /* ldm6.congestion_control (empty: the kernel's default) */
};
#define CONF_PATH_RATE_AS_FMTP UINT64_MAX
/* Fills in the default settings. */
void conf_set_defaults(struct conf_settings *set);
#define CONF_VALID_MAX 1024
enum conf_set_result { CONF_SET_OK, CONF_SET_NAME, CONF_SET_VALUE };
/* Takes one setting; otherwise writes to `valid` which names, or which values, would be valid. */
enum conf_set_result conf_set(struct conf_settings *set, const char *name, const char *value,
                              char *valid, size_t valid_bytes);
#define CONF_PATH_NAME 65
/* Makes the name of a feed's path: path.name with {feed} replaced. Returns out. */
char *conf_path_name(const struct conf_settings *set, uint32_t feed, char out[CONF_PATH_NAME]);

struct conf {
    struct conf_exec *execs;
    struct conf_request *requests;
    struct conf_allow *allows;
    struct conf_accept *accepts;
    struct conf_multicast *multicasts;
    struct conf_receive *receives;
    struct conf_feed_rate *feed_rates;
    struct conf_feed_text *feed_texts;
    size_t nexecs, nrequests, nallows, naccepts, nmulticasts, nreceives, nfeed_rates, nfeed_texts;
    struct conf_settings set;
    size_t nerrors;
};

/* Reads path and what it includes (relative to the including file). Each error is one line
 * `file:line: found ...; valid: ...` on errors. Returns 0 if there was none. Call conf_free() in
 * any case. */
int conf_load(struct conf *c, const char *path, FILE *errors);
/* Does the same from memory; refuses INCLUDE. */
int conf_parse(struct conf *c, const char *name, const char *text, size_t n, FILE *errors);
/* Frees all entries. */
void conf_free(struct conf *c);

/* Returns the bits of want that ALLOW entries grant to a peer known by these names (dotted address
 * first). */
uint32_t conf_allowed(const struct conf *c, uint32_t want, const char *const *names, size_t n);
/* Computes the intersection of what a peer with these names offers and the ACCEPT entries that
 * match it: specs with the entries' patterns (or the offer's, if an entry has ".*"). n = 0:
 * nothing. */
void conf_accepted(const struct conf *c, const struct ldm_class *offer, const char *const *names,
                   size_t n, struct ldm_class *out);
/* Returns how many REQUEST entries request the same feed and pattern, and the place of req among
 * them. */
size_t conf_redundant(const struct conf *c, const struct conf_request *req, size_t *place);
/* Returns whether the path service serves this entry: it names its endpoint, and there is a
 * service. */
bool conf_has_path(const struct conf *c, const struct conf_multicast *m);
/* Returns whether ldmd makes the interface of this entry's VLAN (ldm7.nic, ldm7.nic_tags). */
bool conf_makes_vlan(const struct conf *c, const struct conf_multicast *m);
/* Returns whether this peer may have this product, by okERE/notERE of the entries that match the
 * peer. */
bool conf_allows_product(const struct conf *c, const struct pq_info *info, const char *const *names,
                         size_t n);

#endif
