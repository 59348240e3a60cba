/* SPDX-License-Identifier: Apache-2.0 */
#include "pathrest.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_MAX 0xfffffeffu /* OpenFlow: ports from 0xffffff00 on are reserved */
#define VLAN_MAX 4094

/* ------------------------------------------------------------------ endpoints */

static bool is_graphic(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static bool get_port(const char *text, uint32_t *port)
{
    errno = 0;
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    *port = (uint32_t)v;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && v >= 1 &&
           v <= PORT_MAX;
}

bool path_endpoint_set(struct path_endpoint *e, const char *switch_id, const char *port,
                       unsigned vlan, const char **why)
{
    size_t n = strlen(switch_id);

    memset(e, 0, sizeof *e);
    if (n == 0 || n > PATH_SWITCH_MAX || !is_graphic(switch_id)) {
        *why = "a switch is named by 1 to 64 graphic characters";
        return false;
    }
    if (!get_port(port, &e->port)) {
        *why = "a port is a number from 1 to 4294967039";
        return false;
    }
    if (vlan < 1 || vlan > VLAN_MAX) {
        *why = "a VLAN id is a number from 1 to 4094";
        return false;
    }
    memcpy(e->switch_id, switch_id, n + 1);
    e->vlan = (uint16_t)vlan;
    return true;
}

bool path_endpoint_equal(const struct path_endpoint *a, const struct path_endpoint *b)
{
    return a->port == b->port && a->vlan == b->vlan && strcmp(a->switch_id, b->switch_id) == 0;
}

char *path_endpoint_format(const struct path_endpoint *e, char out[PATH_ENDPOINT_TEXT])
{
    snprintf(out, PATH_ENDPOINT_TEXT, "%s:%u:%u", e->switch_id, e->port, e->vlan);
    return out;
}

/* ------------------------------------------------------------------ requests */

/* RFC 3986 2.1: writes all but unreserved characters as %XX. */
static void put_segment(struct path_request *r, const char *text)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t at = strlen(r->target);

    for (; *text != '\0' && at + 4 < sizeof r->target; text++) {
        unsigned char c = (unsigned char)*text;

        if (isalnum(c) || strchr("-._~", c)) {
            r->target[at++] = (char)c;
            continue;
        }
        r->target[at++] = '%';
        r->target[at++] = hex[c >> 4];
        r->target[at++] = hex[c & 15];
    }
    r->target[at] = '\0';
}

static void put_text(struct path_request *r, const char *text)
{
    size_t at = strlen(r->target);

    snprintf(r->target + at, sizeof r->target - at, "%s", text);
}

static void put_json(struct path_request *r, json_t *value)
{
    size_t n = !value ? 0 : json_dumpb(value, r->body, sizeof r->body - 1, JSON_COMPACT);

    r->body[n < sizeof r->body ? n : 0] = '\0';
    json_decref(value);
}

static json_t *json_of(const struct path_endpoint *e)
{
    return json_pack("{s:s, s:I, s:i}", "switch", e->switch_id, "port", (json_int_t)e->port, "vlan",
                     (int)e->vlan);
}

void path_request_path(struct path_request *r, enum path_method method, const char *name)
{
    *r = (struct path_request){.method = method, .target = "/v1/paths/"};
    put_segment(r, name);
}

void path_request_create(struct path_request *r, const char *name, const struct path_endpoint *root,
                         uint64_t rate_bps)
{
    *r = (struct path_request){.method = PATH_POST, .target = "/v1/paths"};
    put_json(r, json_pack("{s:s, s:o, s:I}", "name", name, "root", json_of(root), "rate_bps",
                          (json_int_t)rate_bps));
}

void path_request_add(struct path_request *r, const char *name, const struct path_endpoint *leaf)
{
    path_request_path(r, PATH_POST, name);
    put_text(r, "/leaves");
    put_json(r, json_of(leaf));
}

void path_request_remove(struct path_request *r, const char *name, const struct path_endpoint *leaf)
{
    char end[32];

    snprintf(end, sizeof end, "/%u/%u", leaf->port, leaf->vlan);
    path_request_path(r, PATH_DELETE, name);
    put_text(r, "/leaves/");
    put_segment(r, leaf->switch_id);
    put_text(r, end);
}

/* ------------------------------------------------------------------ descriptions of paths */

static json_t *load(const char *body, size_t n)
{
    return !body || n > PATH_BODY_MAX ? NULL : json_loadb(body, n, JSON_REJECT_DUPLICATES, NULL);
}

static bool get_integer(const json_t *object, const char *key, json_int_t min, json_int_t max,
                        json_int_t *out)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value))
        return false;
    *out = json_integer_value(value);
    return *out >= min && *out <= max;
}

static bool get_endpoint(const json_t *object, struct path_endpoint *out)
{
    const char *name = json_string_value(json_object_get(object, "switch"));
    json_int_t port, vlan;

    if (!name || name[0] == '\0' || strlen(name) > PATH_SWITCH_MAX ||
        !get_integer(object, "port", 1, PORT_MAX, &port) ||
        !get_integer(object, "vlan", 1, VLAN_MAX, &vlan))
        return false;
    memset(out, 0, sizeof *out);
    memcpy(out->switch_id, name, strlen(name));
    out->port = (uint32_t)port;
    out->vlan = (uint16_t)vlan;
    return true;
}

static bool get_leaves(const json_t *list, struct path_view *v)
{
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > PATH_LEAVES_MAX)
        return false;
    v->leaves = calloc(n + 1, sizeof *v->leaves);
    for (v->nleaves = 0; v->leaves && v->nleaves < n; v->nleaves++) {
        const json_t *leaf = json_array_get(list, v->nleaves);
        const char *state = json_string_value(json_object_get(leaf, "state"));

        if (!get_endpoint(leaf, &v->leaves[v->nleaves].at))
            return false;
        v->leaves[v->nleaves].down = state && strcmp(state, "up") != 0;
    }
    return v->leaves;
}

static const char *get_view(const json_t *top, struct path_view *v)
{
    const char *name = json_string_value(json_object_get(top, "name"));

    if (!name || strlen(name) > PATH_NAME_MAX)
        return "no name";
    memcpy(v->name, name, strlen(name) + 1);
    if (!get_endpoint(json_object_get(top, "root"), &v->root))
        return "no root";
    json_int_t rate;
    if (!get_integer(top, "rate_bps", 0, INT64_MAX, &rate))
        return "no rate_bps";
    v->rate_bps = (uint64_t)rate;
    return get_leaves(json_object_get(top, "leaves"), v) ? NULL : "no leaves";
}

bool path_view_parse(struct path_view *v, const char *body, size_t n, const char **why)
{
    json_t *top = load(body, n);

    memset(v, 0, sizeof *v);
    *why = !top ? "no JSON" : get_view(top, v);
    json_decref(top);
    return !*why;
}

bool path_summary_parse(const char *body, size_t n, char name[PATH_NAME_MAX + 1], bool *is_up)
{
    json_t *top = load(body, n);
    const char *text = json_string_value(json_object_get(top, "name"));
    const char *state = json_string_value(json_object_get(top, "state"));
    bool ok = text && strlen(text) <= PATH_NAME_MAX && state && !json_object_get(top, "leaves");

    if (ok) {
        memcpy(name, text, strlen(text) + 1);
        *is_up = strcmp(state, "up") == 0;
    }
    json_decref(top);
    return ok;
}

const struct path_view_leaf *path_view_find(const struct path_view *v,
                                            const struct path_endpoint *at)
{
    for (size_t i = 0; i < v->nleaves; i++)
        if (path_endpoint_equal(&v->leaves[i].at, at))
            return &v->leaves[i];
    return NULL;
}

void path_view_free(struct path_view *v)
{
    free(v->leaves);
    memset(v, 0, sizeof *v);
}

/* ------------------------------------------------------------------ problems */

char *path_problem_text(const char *body, size_t n, char *out, size_t out_bytes)
{
    json_t *top = load(body, n);
    const char *title = json_string_value(json_object_get(top, "title"));
    const char *detail = json_string_value(json_object_get(top, "detail"));

    if (title || detail)
        snprintf(out, out_bytes, "%s%s%s", title ? title : "", title && detail ? ": " : "",
                 detail ? detail : "");
    else
        snprintf(out, out_bytes, "%.*s", (int)(n < 200 ? n : 200), body ? body : "");
    json_decref(top);
    return out;
}

bool path_problem_is(const char *body, size_t n, const char *kind)
{
    static const char prefix[] = "urn:downpour:problem:";
    json_t *top = load(body, n);
    const char *type = json_string_value(json_object_get(top, "type"));
    bool is = type && strncmp(type, prefix, sizeof prefix - 1) == 0 &&
              strcmp(type + sizeof prefix - 1, kind) == 0;

    json_decref(top);
    return is;
}
