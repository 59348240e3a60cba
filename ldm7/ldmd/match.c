/* SPDX-License-Identifier: Apache-2.0 */
#include "match.h"

#include <stdio.h>
#include <time.h>

#include "common/feedtype.h"

int matcher_init(struct matcher *m, const struct ldm_class *cls, char *err, size_t err_bytes)
{
    memset(m, 0, sizeof *m);
    m->cls = *cls;
    for (uint32_t i = 0; i < cls->n; i++) {
        if (ere_compile(&m->re[i], cls->specs[i].pattern, false, err, err_bytes) < 0) {
            matcher_free(m);
            return -1;
        }
        m->ncompiled = i + 1;
        m->any[i] = strcmp(cls->specs[i].pattern, ".*") == 0;
    }
    return 0;
}

void matcher_free(struct matcher *m)
{
    for (uint32_t i = 0; i < m->ncompiled; i++)
        ere_free(m->re[i]);
    m->ncompiled = 0;
    m->cls.n = 0;
}

bool matcher_wants(const struct matcher *m, const struct pq_info *info)
{
    struct ldm_time t = {(uint32_t)info->creation.tv_sec, (int32_t)info->creation.tv_usec};
    bool endless = ldm_time_cmp(m->cls.to, LDM_TIME_END) == 0;

    if ((!m->ignore_from && ldm_time_cmp(t, m->cls.from) < 0) ||
        (!endless && ldm_time_cmp(t, m->cls.to) > 0))
        return false;
    for (uint32_t i = 0; i < m->ncompiled; i++)
        if ((m->cls.specs[i].feedtype & info->feedtype) != 0 &&
            (m->any[i] || ere_match(m->re[i], info->ident) == ERE_YES))
            return true;
    return false;
}

bool class_take_signature(struct ldm_class *cls, struct pq_signature *sig)
{
    bool found = false;
    uint32_t n = 0;

    for (uint32_t i = 0; i < cls->n; i++) {
        const struct ldm_spec *s = &cls->specs[i];

        if (s->feedtype == FEEDTYPE_NONE && strncmp(s->pattern, "SIG=", 4) == 0)
            found = signature_parse(s->pattern + 4, sig) || found;
        else if (n++ != i)
            cls->specs[n - 1] = *s;
    }
    cls->n = n;
    return found;
}

bool class_add_signature(struct ldm_class *cls, const struct pq_signature *sig)
{
    if (cls->n >= LDM_MAX_SPECS)
        return false;
    struct ldm_spec *s = &cls->specs[cls->n++];
    s->feedtype = FEEDTYPE_NONE;
    char hex[33];
    snprintf(s->pattern, sizeof s->pattern, "SIG=%s", signature_format(sig, hex));
    return true;
}

static void time_format(struct ldm_time t, char *out, size_t out_bytes)
{
    time_t sec = t.sec;
    size_t n;

    struct tm tm;
    if (ldm_time_cmp(t, LDM_TIME_ZERO) == 0) {
        snprintf(out, out_bytes, "TS_ZERO");
    } else if (ldm_time_cmp(t, LDM_TIME_END) == 0) {
        snprintf(out, out_bytes, "TS_ENDT");
    } else {
        gmtime_r(&sec, &tm);
        n = strftime(out, out_bytes, "%Y%m%d%H%M%S", &tm);
        snprintf(out + n, out_bytes - n, ".%06d", t.usec);
    }
}

char *class_format(const struct ldm_class *cls, char *out, size_t out_bytes)
{
    char from[40];
    time_format(cls->from, from, sizeof from);
    char to[40];
    time_format(cls->to, to, sizeof to);
    size_t used = (size_t)snprintf(out, out_bytes, "%s %s {", from, to);
    char feed[FEEDTYPE_TEXT_MAX];
    for (uint32_t i = 0; i < cls->n && used < out_bytes; i++)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s{%s, \"%s\"}", i > 0 ? ", " : "",
                                 feedtype_format(cls->specs[i].feedtype, feed, sizeof feed),
                                 cls->specs[i].pattern);
    if (used < out_bytes)
        snprintf(out + used, out_bytes - used, "}");
    return out;
}
