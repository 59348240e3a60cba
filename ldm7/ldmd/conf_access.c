/* SPDX-License-Identifier: Apache-2.0
 *
 * What the configuration grants: ALLOW, ACCEPT, and which REQUESTs are redundant.
 */
#include <string.h>

#include "conf.h"

static bool host_matches(struct ere *host, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ere_match(host, names[i]) == ERE_YES)
            return true;
    return false;
}

uint32_t conf_allowed(const struct conf *c, uint32_t want, const char *const *names, size_t n)
{
    uint32_t got = 0;

    for (size_t i = 0; i < c->nallows; i++)
        if ((c->allows[i].feed & want & ~got) != 0 && host_matches(c->allows[i].host, names, n))
            got |= c->allows[i].feed & want;
    return got;
}

bool conf_allows_product(const struct conf *c, const struct pq_info *info, const char *const *names,
                         size_t n)
{
    for (size_t i = 0; i < c->nallows; i++) {
        const struct conf_allow *a = &c->allows[i];

        if ((a->feed & info->feedtype) != 0 &&
            (!a->ok || ere_match(a->ok, info->ident) == ERE_YES) &&
            (!a->unless || ere_match(a->unless, info->ident) == ERE_NO) &&
            host_matches(a->host, names, n))
            return true;
    }
    return false;
}

void conf_accepted(const struct conf *c, const struct ldm_class *offer, const char *const *names,
                   size_t n, struct ldm_class *out)
{
    out->from = offer->from;
    out->to = offer->to;
    out->n = 0;
    for (uint32_t i = 0; i < offer->n; i++)
        for (size_t k = 0; k < c->naccepts && out->n < LDM_MAX_SPECS; k++) {
            const struct conf_accept *a = &c->accepts[k];
            uint32_t feed = a->feed & offer->specs[i].feedtype;

            if (feed == 0 || !host_matches(a->host, names, n))
                continue;
            out->specs[out->n].feedtype = feed;
            snprintf(out->specs[out->n++].pattern, LDM_PATTERN_MAX + 1, "%s",
                     strcmp(a->ere, ".*") == 0 ? offer->specs[i].pattern : a->ere);
        }
}

size_t conf_redundant(const struct conf *c, const struct conf_request *req, size_t *place)
{
    size_t n = 0;

    *place = 0;
    for (size_t i = 0; i < c->nrequests; i++) {
        const struct conf_request *r = &c->requests[i];

        if (r == req)
            *place = n;
        if (r->feed == req->feed && strcmp(r->ere, req->ere) == 0)
            n++;
    }
    return n;
}

bool conf_makes_vlan(const struct conf *c, const struct conf_multicast *m)
{
    return m->nic[0] != '\0' && m->vlan != 0 && c->set.nic_tags;
}

bool conf_has_path(const struct conf *c, const struct conf_multicast *m)
{
    return c->set.path_service[0] != '\0' && strcmp(m->switch_id, "dummy") != 0;
}
