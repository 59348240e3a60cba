/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <string.h>

#include "conf_impl.h"
#include "pathrest.h"

static uint64_t rate_of(const struct conf *c, uint32_t feed, bool is_path, uint64_t otherwise)
{
    for (size_t i = c->nfeed_rates; i-- > 0;)
        if (c->feed_rates[i].is_path == is_path && (feed & ~c->feed_rates[i].feed) == 0)
            return c->feed_rates[i].bps;
    return otherwise;
}

/* Returns the text of the last setting that applies to the whole feed, or `otherwise`. */
static const char *text_of(const struct conf *c, uint32_t feed, bool is_nic, const char *otherwise)
{
    for (size_t i = c->nfeed_texts; i-- > 0;)
        if (c->feed_texts[i].is_nic == is_nic && (feed & ~c->feed_texts[i].feed) == 0)
            return c->feed_texts[i].text;
    return otherwise;
}

/* A path must begin at a numbered port and a VLAN. */
static void check_endpoint(struct conf *c, const struct conf_multicast *m, FILE *errors)
{
    struct parser p = {.c = c, .name = m->file, .line = m->line, .errors = errors};
    const char *why;

    struct path_endpoint root;
    if (conf_has_path(c, m) && !path_endpoint_set(&root, m->switch_id, m->port_id, m->vlan, &why))
        conf_complain(&p, m->switch_id, "an endpoint of the path service, or dummy",
                      "port %s, VLAN %u: %s", m->port_id, m->vlan, why);
}

/* An interface to be made must have a name, an address and no other user. */
static void check_nic(struct conf *c, size_t entry, FILE *errors)
{
    const struct conf_multicast *m = &c->multicasts[entry];
    struct parser p = {.c = c, .name = m->file, .line = m->line, .errors = errors};
    char name[32];

    if (m->nic[0] == '\0')
        return;
    bool makes = conf_makes_vlan(c, m);
    snprintf(name, sizeof name, makes ? "%s.%u" : "%s", m->nic, m->vlan);
    if (makes && (m->fmtp_addr.s_addr == htonl(INADDR_ANY) || m->subnet_len == 0))
        conf_complain(&p, name,
                      "fmtpAddr and a subnetLen of at least 1 for the interface of ldm7.nic", "%s",
                      "no address");
    else if (makes && strlen(name) > 15)
        conf_complain(&p, name, "at most 15 characters of ldm7.nic, a dot and the VLAN", "%s", "");
    for (size_t i = 0; i < entry; i++)
        if (strcmp(c->multicasts[i].nic, m->nic) == 0 &&
            (!makes || c->multicasts[i].vlan == m->vlan))
            conf_complain(&p, name, "a separate interface for each MULTICAST entry", "%s",
                          "an earlier entry uses it");
}

void conf_settle(struct conf *c, FILE *errors)
{
    if (c->set.time_offset_s < 0)
        c->set.time_offset_s = c->set.max_latency_s;
    for (size_t i = 0; i < c->nmulticasts; i++) {
        struct conf_multicast *m = &c->multicasts[i];
        uint64_t all = c->set.path_rate_bps;

        m->r_mc_bps = rate_of(c, m->feed, false, c->set.r_mc_bps);
        m->path_rate_bps =
            rate_of(c, m->feed, true, all != CONF_PATH_RATE_AS_FMTP ? all : m->r_mc_bps);
        check_endpoint(c, m, errors);
        memcpy(m->key_file, text_of(c, m->feed, false, c->set.key_file), sizeof m->key_file);
        memcpy(m->nic, text_of(c, m->feed, true, c->set.nic), sizeof m->nic);
        check_nic(c, i, errors);
    }
    for (size_t i = 0; i < c->nreceives; i++) {
        c->receives[i].r_mc_bps = rate_of(c, c->receives[i].feed, false, c->set.r_mc_bps);
        memcpy(c->receives[i].key_file, text_of(c, c->receives[i].feed, false, c->set.key_file),
               sizeof c->receives[i].key_file);
    }
}
