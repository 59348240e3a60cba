/* SPDX-License-Identifier: Apache-2.0 */
#include "push.h"

#include <stdio.h>

#include "common/log.h"
#include "common/product_line.h"

static void put_class(struct xout *x, const void *arg)
{
    xout_class(x, arg);
}

static bool take_hiya(struct xin *body, void *arg)
{
    struct push *p = arg;

    xin_ldm6_reply(body, true, &p->reply);
    return xin_done(body);
}

static bool take_code(struct xin *body, void *arg)
{
    struct push *p = arg;

    p->code = xin_u32(body);
    return xin_done(body);
}

static bool hiya(struct push *p, uint32_t feed)
{
    struct ldm_class cls = {.to = LDM_TIME_END, .n = 1, .specs = {{feed, ".*"}}};
    uint32_t xid = peer_call(&p->c.peer, LDM_VERS6, LDM6_HIYA, put_class, &cls);

    if (!client_answer(&p->c, xid, p->timeout_s, take_hiya, p))
        return false;
    if (p->reply.code == LDM6_RECLASS && p->reply.cls.n > 0) {
        cls = p->reply.cls;
        char text[1024];
        log_note("%s accepts only %s", p->host, class_format(&cls, text, sizeof text));
    } else if (p->reply.code != LDM6_OK) {
        snprintf(p->c.why, sizeof p->c.why, "the server does not accept the feed");
        return false;
    }
    p->max_hereis = p->reply.value;
    return matcher_init(&p->accepted, &cls, p->c.why, sizeof p->c.why) == 0;
}

static void put_coming(struct xout *x, const void *arg)
{
    const struct pq_info *info = arg;

    xout_info(x, info);
    xout_u32(x, info->size);
}

bool push_product(struct push *p, const struct pq_view *v)
{
    char line[PRODUCT_LINE_MAX];

    product_line_format(&v->info, line, sizeof line);
    if (!matcher_wants(&p->accepted, &v->info)) {
        log_warn("not accepted by %s: %s", p->host, line);
        return true;
    }
    if (v->info.size <= p->max_hereis) {
        peer_send_product(&p->c.peer, LDM_VERS6, LDM6_HEREIS, false, 0, NULL, v);
    } else {
        uint32_t xid = peer_call(&p->c.peer, LDM_VERS6, LDM6_COMINGSOON, put_coming, &v->info);

        if (!client_answer(&p->c, xid, p->timeout_s, take_code, p))
            return false;
        if (p->code == LDM6_DONT_SEND) {
            log_info("not wanted: %s", line);
            return true;
        }
        peer_send_product(&p->c.peer, LDM_VERS6, LDM6_BLKDATA, false, 0, NULL, v);
    }
    if (!client_flush(&p->c, p->timeout_s))
        return false;
    log_info("sent: %s", line);
    return true;
}

bool push_begin(struct push *p, uint32_t feed)
{
    p->accepted = (struct matcher){0};
    return client_connect(&p->c, p->host, p->port, p->timeout_s, NULL) && hiya(p, feed);
}

bool push_taken(struct push *p)
{
    return client_null(&p->c, p->timeout_s);
}

void push_end(struct push *p)
{
    client_disconnect(&p->c);
    matcher_free(&p->accepted);
}
