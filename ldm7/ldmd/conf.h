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
    struct ere *host, *ok, *unless; /* ok, unless: NULL if absent */
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
    uint8_t subnet_len;       /* its subnet's, for subscribers with a VLAN; 0: none */
    uint16_t vlan;
    char switch_id[CONF_TEXT], port_id[CONF_TEXT];
    uint64_t r_mc_bps, path_rate_bps; /* the settings, or this feed's own */
    char key_file[CONF_TEXT];         /* the same; empty: none */
    char nic[16];                     /* the same; empty: its interface is not ours (lane.h) */
    char file[CONF_TEXT];             /* where the entry is */
    unsigned line;
};
struct conf_receive {
    uint32_t feed;
    char host[CONF_TEXT];
    uint16_t port;
    struct in_addr iface; /* NIC1 of the subscriber; 0.0.0.0: as routed, or: */
    char iface_name[16];  /* its name, if that was given; else empty */
    char switch_id[CONF_TEXT], port_id[CONF_TEXT];
    uint16_t vlan;
    uint64_t r_mc_bps;        /* the setting, or this feed's own */
    char key_file[CONF_TEXT]; /* the same; empty: none */
};
/* SET name value feedtype: of the entries whose feed is part of it; the last one counts. */
struct conf_feed_rate {
    uint32_t feed;
    bool is_path;
    uint64_t bps;
};
/* Which products that arrive by LDM6 must have the digest that their signature says. */
enum conf_verify {
    VERIFY_NONE,
    VERIFY_PUSHED, /* those that peers push */
    VERIFY_ALL     /* and those that are requested */
};
/* The same of fmtp.key_file and ldm7.nic. */
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
    uint64_t r_mc_bps;         /* fmtp.r_mc_bps (20 Mbit/s) */
    uint64_t b_rcv_bytes;      /* fmtp.b_rcv_bytes (8 MiB) */
    uint64_t b_snd_bytes;      /* fmtp.b_snd_bytes (0: the system's default) */
    uint64_t r_uc_bps;         /* fmtp.r_uc_bps (0: no limit) */
    uint64_t pdu_bytes;        /* fmtp.pdu_bytes (0: 1460, less where the path takes less) */
    uint64_t held_products;    /* fmtp.held_products (4000; 0: no limit) */
    double held_share;         /* fmtp.held_share (0.5 of the queue; 0: no limit) */
    uint64_t held_s;           /* fmtp.held_s (3600; 0: no limit) */
    uint8_t ttl;               /* fmtp.ttl (1) */
    uint8_t mac_level;         /* fmtp.mac_level auto|0|1|2 (auto) */
    char key_file[CONF_TEXT];  /* fmtp.key_file (empty: none) */
    uint8_t repair;            /* fmtp.repair (multicast), enum conf_repair */
    double max_latency_s;      /* ldm6.max_latency_s (3600): older products are ignored */
    double time_offset_s;      /* ldm6.time_offset_s (max_latency_s): how far back to ask */
    bool anti_dos;             /* ldm6.anti_dos 0|1 (1): one feed of a product to an address */
    uint8_t verify_md5_6;      /* ldm6.verify_md5 0|1|2 (1), enum conf_verify */
    bool verify_md5;           /* ldm7.verify_md5 0|1 (1) */
    bool fallback;             /* ldm7.fallback 0|1 (1): LDM6 while there is no multicast */
    uint64_t dead_s;           /* ldm7.dead_s (60): a silent host's connection ends */
    uint64_t retry_s;          /* ldm7.retry_s (60): a refused subscription is tried again */
    char nic[16];              /* ldm7.nic (empty): where MULTICAST entries' VLANs are made */
    bool nic_tags;             /* ldm7.nic_tags 0|1 (1); 0: the switch's port tags */
    uint64_t nic_buffer_bytes; /* ldm7.nic_buffer_bytes (600 MB; 0: no traffic control) */
    char vlanutil[CONF_TEXT];  /* ldm7.vlanutil (vlanutil): path, or name in PATH */
    char path_service[CONF_SERVICES]; /* path.service unix:/PATH or URL[,...] (empty: there is
                                       * none) */
    char path_name[CONF_TEXT];        /* path.name ({feed}) */
    char path_token_file[CONF_TEXT];  /* path.token_file (empty: none) */
    char path_ca_file[CONF_TEXT];     /* path.ca_file (empty: the system's) */
    uint64_t path_rate_bps;           /* path.rate_bps (CONF_PATH_RATE_AS_FMTP) */
    uint64_t path_timeout_s;          /* path.timeout_s (30): how long a subscriber waits for it */
    uint64_t path_grace_s;            /* path.grace_s (30): leaves found there stay so long */
    bool sandbox;                     /* ldmd.sandbox on|off (on): see confine.h */
    bool stats;                       /* ldmd.stats on|off (on): see counters.h */
    char congestion_control[16];      /* ldm6.congestion_control (empty: the kernel's default) */
};
#define CONF_PATH_RATE_AS_FMTP UINT64_MAX
/* The default settings. */
void conf_set_defaults(struct conf_settings *set);
#define CONF_VALID_MAX 1024
enum conf_set_result { CONF_SET_OK, CONF_SET_NAME, CONF_SET_VALUE };
/* Takes one setting; otherwise says in `valid` what would be: which names, or which values. */
enum conf_set_result conf_set(struct conf_settings *set, const char *name, const char *value,
                              char *valid, size_t valid_bytes);
#define CONF_PATH_NAME 65
/* The name of a feed's path: path.name with the feed instead of {feed}. Returns out. */
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

/* Reads path and what it includes (relative to the including file). Every error is one line
 * `file:line: found ...; valid: ...` on errors. 0 if there was none. Call conf_free in any case. */
int conf_load(struct conf *c, const char *path, FILE *errors);
/* The same from memory; INCLUDE is refused. */
int conf_parse(struct conf *c, const char *name, const char *text, size_t n, FILE *errors);
/* Frees all entries. */
void conf_free(struct conf *c);

/* Bits of want that ALLOW entries grant to a peer known by these names (dotted address first). */
uint32_t conf_allowed(const struct conf *c, uint32_t want, const char *const *names, size_t n);
/* The intersection of what a peer of these names offers and the ACCEPT entries that match it: specs
 * of the entries' patterns (of the offer's where an entry has ".*"). n = 0: nothing. */
void conf_accepted(const struct conf *c, const struct ldm_class *offer, const char *const *names,
                   size_t n, struct ldm_class *out);
/* How many REQUEST entries ask for the same feed and pattern, and the place of req among them. */
size_t conf_redundant(const struct conf *c, const struct conf_request *req, size_t *place);
/* True if the path service serves this entry: it names its endpoint, and there is a service. */
bool conf_has_path(const struct conf *c, const struct conf_multicast *m);
/* True if ldmd makes the interface of this entry's VLAN (ldm7.nic, ldm7.nic_tags). */
bool conf_makes_vlan(const struct conf *c, const struct conf_multicast *m);
/* True if this peer may have this product, by okERE/notERE of the entries that match the peer. */
bool conf_allows_product(const struct conf *c, const struct pq_info *info, const char *const *names,
                         size_t n);

#endif
