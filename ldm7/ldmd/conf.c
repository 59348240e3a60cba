/* SPDX-License-Identifier: Apache-2.0 */
#include "conf.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "common/alloc.h"
#include "common/conftext.h"
#include "common/feedtype.h"
#include "common/words.h"
#include "conf_impl.h"

#define FIELDS_MAX 10
#define INCLUDE_DEPTH_MAX 8
#define ENTRIES_MAX 4096u

void conf_complain(const struct parser *p, const char *found, const char *valid, const char *why,
                   ...)
{
    p->c->nerrors++;
    va_list ap;
    va_start(ap, why);
    conftext_complain(p->errors, p->name, p->line, found, valid, why, ap);
    va_end(ap);
}

/* ------------------------------------------------------------------ fields */

static bool get_feed(struct parser *p, const char *text, uint32_t *out)
{
    char why[512];

    if (feedtype_parse(text, out, why, sizeof why))
        return true;
    char *valid = strstr(why, "; valid: ");
    if (valid)
        *valid = '\0';
    conf_complain(p, text, "a feedtype such as NGRID, ANY or ANY-EXP", "%s", why);
    return false;
}

static bool get_text(struct parser *p, const char *text, const char *what, char out[CONF_TEXT])
{
    if (text[0] != '\0' && strlen(text) < CONF_TEXT) {
        snprintf(out, CONF_TEXT, "%s", text);
        return true;
    }
    conf_complain(p, text, what, "%s", text[0] == '\0' ? "empty" : "too long");
    return false;
}

static bool get_number(const char *text, unsigned long max, unsigned long *out)
{
    errno = 0;
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    *out = strtoul(text, &end, 10);
    return errno == 0 && *end == '\0' && *out <= max;
}

/* Splits host[:port] in place. */
static bool split_port(struct parser *p, char *text, unsigned long min, uint16_t *port)
{
    char *colon = strrchr(text, ':');

    if (!colon)
        return true;
    unsigned long v;
    if (!get_number(colon + 1, 65535, &v) || v < min) {
        conf_complain(p, text, "a port of at most 65535 after the colon", "%s", "");
        return false;
    }
    *colon = '\0';
    *port = (uint16_t)v;
    return true;
}

static bool get_host(struct parser *p, char *text, char out[CONF_TEXT], uint16_t *port)
{
    *port = LDM_PORT;
    return split_port(p, text, 1, port) && get_text(p, text, "host or host:port", out);
}

static bool get_addr(struct parser *p, char *text, const char *what, struct in_addr *out)
{
    if (inet_pton(AF_INET, text, out) == 1)
        return true;
    conf_complain(p, text, what, "%s", "");
    return false;
}

static bool get_ere(struct parser *p, const char *text, bool ignore_case, struct ere **out)
{
    char why[512];

    if (ere_compile(out, text, ignore_case, why, sizeof why) == 0)
        return true;
    conf_complain(p, text, "an extended regular expression", "%s", why);
    return false;
}

static bool check_ere(struct parser *p, const char *text, char out[CONF_TEXT])
{
    struct ere *re;

    if (!get_text(p, text, "an extended regular expression of at most 255 bytes", out) ||
        !get_ere(p, text, false, &re))
        return false;
    ere_free(re);
    return true;
}

static bool get_endpoint(struct parser *p, const char *sw, const char *port, const char *vlan,
                         char sw_out[CONF_TEXT], char port_out[CONF_TEXT], uint16_t *vlan_out)
{
    unsigned long v = 0;
    bool ok = get_text(p, sw, "the name of a switch, or dummy", sw_out);

    ok = get_text(p, port, "the name of a switch port, or dummy", port_out) && ok;
    if (!get_number(vlan, 4094, &v)) {
        conf_complain(p, vlan, "a VLAN id from 0 (none) to 4094", "%s", "");
        ok = false;
    }
    *vlan_out = (uint16_t)v;
    return ok;
}

/* ------------------------------------------------------------------ entries */

static void entry_exec(struct parser *p, char **f, int n)
{
    struct conf *c = p->c;
    char why[80];
    size_t words;
    char **argv = words_split(f[1], &words, why, sizeof why);

    (void)n;
    if (!argv) {
        conf_complain(p, f[1], "a command in double quotes", "%s", why);
        return;
    }
    c->execs = xgrow(c->execs, &c->nexecs, sizeof *c->execs);
    c->execs[c->nexecs - 1].argv = argv;
}

static void entry_request(struct parser *p, char **f, int n)
{
    struct conf *c = p->c;
    struct conf_request r = {0};
    bool ok = get_feed(p, f[1], &r.feed);

    (void)n;
    ok = check_ere(p, f[2], r.ere) && ok;
    ok = get_host(p, f[3], r.host, &r.port) && ok;
    for (size_t i = 0; ok && i < c->nrequests; i++)
        if (c->requests[i].feed == r.feed && c->requests[i].port == r.port &&
            strcmp(c->requests[i].ere, r.ere) == 0 &&
            strcasecmp(c->requests[i].host, r.host) == 0) {
            conf_complain(p, f[3], "REQUEST entries that differ in feedtype, prodERE or host",
                          "the same REQUEST already exists");
            ok = false;
        }
    if (!ok)
        return;
    c->requests = xgrow(c->requests, &c->nrequests, sizeof r);
    c->requests[c->nrequests - 1] = r;
}

static void entry_allow(struct parser *p, char **f, int n)
{
    struct conf *c = p->c;
    struct conf_allow a = {0};
    bool ok = get_feed(p, f[1], &a.feed);

    ok = get_text(p, f[2], "an extended regular expression of at most 255 bytes", a.host_ere) &&
         get_ere(p, f[2], true, &a.host) && ok;
    if (n > 3)
        ok = get_ere(p, f[3], false, &a.ok) && ok;
    if (n > 4)
        ok = get_ere(p, f[4], false, &a.unless) && ok;
    if (ok) {
        c->allows = xgrow(c->allows, &c->nallows, sizeof a);
        c->allows[c->nallows - 1] = a;
        return;
    }
    ere_free(a.host);
    ere_free(a.ok);
    ere_free(a.unless);
}

static void entry_accept(struct parser *p, char **f, int n)
{
    struct conf *c = p->c;
    struct conf_accept a = {0};
    bool ok = get_feed(p, f[1], &a.feed);

    (void)n;
    ok = check_ere(p, f[2], a.ere) && ok;
    ok = get_text(p, f[3], "an extended regular expression of at most 255 bytes", a.host_ere) &&
         get_ere(p, f[3], true, &a.host) && ok;
    if (!ok) {
        ere_free(a.host);
        return;
    }
    c->accepts = xgrow(c->accepts, &c->naccepts, sizeof a);
    c->accepts[c->naccepts - 1] = a;
}

static void entry_multicast(struct parser *p, char **f, int n)
{
    struct conf *c = p->c;
    struct conf_multicast m = {.group = {.sin_family = AF_INET}};
    uint16_t group_port = LDM_PORT;
    unsigned long subnet = 0;
    bool ok = get_feed(p, f[1], &m.feed);

    bool group_ok = split_port(p, f[2], 1, &group_port) &&
                    get_addr(p, f[2], "a multicast address (224.0.0.0 to 239.255.255.255)[:port]",
                             &m.group.sin_addr);
    if (group_ok && !IN_MULTICAST(ntohl(m.group.sin_addr.s_addr))) {
        conf_complain(p, f[2], "a multicast address (224.0.0.0 to 239.255.255.255)[:port]", "%s",
                      "");
        group_ok = false;
    }
    m.group.sin_port = htons(group_port);
    ok = group_ok && ok;
    snprintf(m.switch_id, sizeof m.switch_id, "dummy");
    snprintf(m.port_id, sizeof m.port_id, "dummy");
    if (n > 3) {
        ok = split_port(p, f[3], 0, &m.fmtp_port) &&
             get_addr(p, f[3], "the publisher's IPv4 address on the path (NIC1)[:port]",
                      &m.fmtp_addr) &&
             ok;
        if (!get_number(f[4], 32, &subnet)) {
            conf_complain(p, f[4], "the prefix length of the FMTP subnet, 0 to 32", "%s", "");
            ok = false;
        }
        m.subnet_len = (uint8_t)subnet;
        ok = get_endpoint(p, f[6], f[7], f[5], m.switch_id, m.port_id, &m.vlan) && ok;
    }
    if (!ok)
        return;
    snprintf(m.file, sizeof m.file, "%s", p->name);
    m.line = p->line;
    for (size_t i = 0; i < c->nmulticasts; i++)
        if ((c->multicasts[i].feed & m.feed) != 0) {
            conf_complain(p, f[1], "MULTICAST entries without common feeds", "%s",
                          "overlaps an earlier MULTICAST entry");
            return;
        }
    c->multicasts = xgrow(c->multicasts, &c->nmulticasts, sizeof m);
    c->multicasts[c->nmulticasts - 1] = m;
}

/* Takes the address of NIC1, or the name of an interface (which may not exist yet). */
static bool get_iface(struct parser *p, const char *text, struct conf_receive *r)
{
    size_t n = strlen(text);

    if (inet_pton(AF_INET, text, &r->iface) == 1)
        return true;
    if (n > 0 && n < sizeof r->iface_name && isalpha((unsigned char)text[0]) &&
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@") == n) {
        snprintf(r->iface_name, sizeof r->iface_name, "%s", text);
        return true;
    }
    conf_complain(p, text,
                  "this host's IPv4 address on the path (NIC1), or the name of that interface",
                  "%s", "");
    return false;
}

static void entry_receive(struct parser *p, char **f, int n)
{
    struct conf *c = p->c;
    struct conf_receive r = {0};
    char none[] = "dummy", no_vlan[] = "0";
    bool ok = get_feed(p, f[1], &r.feed);

    ok = get_host(p, f[2], r.host, &r.port) && ok;
    ok = (n < 4 || get_iface(p, f[3], &r)) && ok;
    ok = get_endpoint(p, n > 4 ? f[4] : none, n > 5 ? f[5] : none, n > 6 ? f[6] : no_vlan,
                      r.switch_id, r.port_id, &r.vlan) &&
         ok;
    for (size_t i = 0; ok && i < c->nreceives; i++)
        if ((c->receives[i].feed & r.feed) != 0 && c->receives[i].port == r.port &&
            strcasecmp(c->receives[i].host, r.host) == 0) {
            conf_complain(p, f[1], "RECEIVE entries of one host without common feeds",
                          "overlaps an earlier RECEIVE entry");
            ok = false;
        }
    if (!ok)
        return;
    c->receives = xgrow(c->receives, &c->nreceives, sizeof r);
    c->receives[c->nreceives - 1] = r;
}

/* Takes a setting for some feeds only: f[1] is known and f[2] is valid. */
static void set_feed_rate(struct parser *p, char **f, const struct conf_settings *set)
{
    struct conf *c = p->c;
    struct conf_feed_rate r = {.is_path = strcasecmp(f[1], "path.rate_bps") == 0};

    r.bps = r.is_path ? set->path_rate_bps : set->r_mc_bps;
    if (!r.is_path && strcasecmp(f[1], "fmtp.r_mc_bps") != 0) {
        conf_complain(p, f[3],
                      "fmtp.key_file, fmtp.r_mc_bps, ldm7.nic or path.rate_bps with a feedtype",
                      "%s has one value for all", f[1]);
    } else if (c->nfeed_rates >= ENTRIES_MAX) {
        conf_complain(p, f[3], "at most 4096 rates of feeds", "%s", "");
    } else if (get_feed(p, f[3], &r.feed)) {
        c->feed_rates = xgrow(c->feed_rates, &c->nfeed_rates, sizeof r);
        c->feed_rates[c->nfeed_rates - 1] = r;
    }
}

static void set_feed_text(struct parser *p, char **f, bool is_nic)
{
    struct conf *c = p->c;
    struct conf_feed_text t = {.is_nic = is_nic};

    snprintf(t.text, sizeof t.text, "%s", f[2]);
    if (c->nfeed_texts >= ENTRIES_MAX) {
        conf_complain(p, f[3], "at most 4096 keys and NICs of feeds", "%s", "");
    } else if (get_feed(p, f[3], &t.feed)) {
        c->feed_texts = xgrow(c->feed_texts, &c->nfeed_texts, sizeof t);
        c->feed_texts[c->nfeed_texts - 1] = t;
    }
}

static void entry_set(struct parser *p, char **f, int n)
{
    struct conf_settings one = p->c->set, *set = n > 3 ? &one : &p->c->set;
    char valid[CONF_VALID_MAX];
    enum conf_set_result r = conf_set(set, f[1], f[2], valid, sizeof valid);

    if (r == CONF_SET_NAME)
        conf_complain(p, f[1], valid, "unknown setting");
    else if (r == CONF_SET_VALUE)
        conf_complain(p, f[2], valid, "value of %s", f[1]);
    else if (n > 3 && strcasecmp(f[1], "fmtp.key_file") == 0)
        set_feed_text(p, f, false);
    else if (n > 3 && strcasecmp(f[1], "ldm7.nic") == 0)
        set_feed_text(p, f, true);
    else if (n > 3)
        set_feed_rate(p, f, set);
}

/* ------------------------------------------------------------------ lines */

static void load_file(struct parser *p, const char *path, const char *found);

static void entry_include(struct parser *p, char **f, int n)
{
    const char *slash = strrchr(p->name, '/');

    (void)n;
    if (!p->may_include || p->depth >= INCLUDE_DEPTH_MAX) {
        conf_complain(p, f[1], "files included by each other, eight deep at most",
                      "INCLUDE nested too deeply");
        return;
    }
    char path[4096];
    if (f[1][0] == '/' || !slash)
        n = snprintf(path, sizeof path, "%s", f[1]);
    else
        n = snprintf(path, sizeof path, "%.*s/%s", (int)(slash - p->name), p->name, f[1]);
    if (n < 0 || (size_t)n >= sizeof path)
        conf_complain(p, f[1], "a shorter path", "%s", "");
    else
        load_file(p, path, f[1]);
}

static const struct keyword {
    const char *name;
    int min, max; /* fields, keyword included */
    void (*handle)(struct parser *p, char **f, int n);
    const char *usage;
} keywords[] = {
    {"EXEC", 2, 2, entry_exec, "EXEC \"command arguments\""},
    {"REQUEST", 4, 4, entry_request, "REQUEST feedtype prodERE host[:port]"},
    {"ALLOW", 3, 5, entry_allow, "ALLOW feedtype hostERE [okERE [notERE]]"},
    {"ACCEPT", 4, 4, entry_accept, "ACCEPT feedtype prodERE hostERE"},
    {"INCLUDE", 2, 2, entry_include, "INCLUDE path"},
    {"MULTICAST", 3, 8, entry_multicast,
     "MULTICAST feedtype group[:port] [fmtpAddr[:port] subnetLen vlanId switch port]"},
    {"RECEIVE", 3, 7, entry_receive,
     "RECEIVE feedtype host[:port] [fmtpIface [switch port [vlan]]]"},
    {"SET", 3, 4, entry_set, "SET name value [feedtype]"},
};
#define NKEYWORDS (sizeof keywords / sizeof keywords[0])

/* Cuts a line into fields in place. Returns -1 for too many, -2 for an unclosed quote. */
static int split(char *line, char **fields)
{
    int n = 0;
    char *out = line;

    for (;;) {
        while (*line == ' ' || *line == '\t' || *line == '\r')
            line++;
        if (*line == '\0' || *line == '#')
            return n;
        if (n == FIELDS_MAX)
            return -1;
        bool quoted = *line == '"';
        line += quoted;
        fields[n++] = out;
        while (*line != '\0' && (quoted ? *line != '"' : !strchr(" \t\r", *line))) {
            if (quoted && *line == '\\' && line[1] == '"')
                line++;
            *out++ = *line++;
        }
        if (quoted && *line != '"')
            return -2;
        if (*line != '\0')
            line++;
        *out++ = '\0';
    }
}

static size_t entries(const struct conf *c)
{
    return c->nexecs + c->nrequests + c->nallows + c->naccepts + c->nmulticasts + c->nreceives;
}

static void take_line(struct parser *p, char *line)
{
    char *fields[FIELDS_MAX];
    const struct keyword *k = NULL;
    bool indented = line[0] == ' ' || line[0] == '\t';
    int n = split(line, fields);

    if (n == 0)
        return;
    if (n < 0) {
        conf_complain(p, fields[0], n == -1 ? "at most 8 fields" : "a closing double quote", "%s",
                      "");
        return;
    }
    for (size_t i = 0; i < NKEYWORDS && !k; i++)
        if (strcasecmp(fields[0], keywords[i].name) == 0)
            k = &keywords[i];
    if (!k || indented)
        conf_complain(
            p, fields[0],
            "EXEC, REQUEST, ALLOW, ACCEPT, INCLUDE, MULTICAST, RECEIVE or SET in the first "
            "column",
            "%s", !k ? "unknown keyword" : "indented keyword");
    else if (n < k->min || n > k->max || (k->handle == entry_multicast && n > 3 && n < 8) ||
             (k->handle == entry_receive && n == 5))
        conf_complain(p, fields[0], k->usage, "%d field%s after it", n - 1, n == 2 ? "" : "s");
    else if (entries(p->c) >= ENTRIES_MAX)
        conf_complain(p, fields[0], "at most 4096 entries", "%s", "");
    else
        k->handle(p, fields, n);
}

static void parse_text(struct parser *p, char *text)
{
    while (text) {
        char *next = strchr(text, '\n');

        if (next)
            *next++ = '\0';
        p->line++;
        take_line(p, text);
        text = next;
    }
}

static void load_file(struct parser *p, const char *path, const char *found)
{
    struct parser inner = {.c = p->c,
                           .name = path,
                           .depth = p->depth + 1,
                           .may_include = true,
                           .errors = p->errors,
                           .outer = p};
    const char *why = NULL;

    struct stat st;
    if (stat(path, &st) == 0) {
        inner.device = st.st_dev;
        inner.inode = st.st_ino;
    }
    for (const struct parser *o = p; o; o = o->outer)
        if (o->inode != 0 && o->inode == inner.inode && o->device == inner.device) {
            conf_complain(p, found, "a file that does not include itself", "%s includes itself",
                          path);
            return;
        }
    char *text = conftext_read(path, &why);
    if (!text) {
        conf_complain(p, found, "a readable configuration file", "%s: %s", path, why);
        return;
    }
    parse_text(&inner, text);
    free(text);
}

static void set_defaults(struct conf *c)
{
    memset(c, 0, sizeof *c);
    conf_set_defaults(&c->set);
}

int conf_load(struct conf *c, const char *path, FILE *errors)
{
    struct parser p = {.c = c, .name = path, .depth = -1, .may_include = true, .errors = errors};

    set_defaults(c);
    load_file(&p, path, path);
    conf_settle(c, errors);
    return c->nerrors == 0 ? 0 : -1;
}

int conf_parse(struct conf *c, const char *name, const char *text, size_t n, FILE *errors)
{
    struct parser p = {.c = c, .name = name, .errors = errors};
    char *copy = xcalloc(1, n + 1);

    set_defaults(c);
    memcpy(copy, text, n);
    parse_text(&p, copy);
    conf_settle(c, errors);
    free(copy);
    return c->nerrors == 0 ? 0 : -1;
}

void conf_free(struct conf *c)
{
    for (size_t i = 0; i < c->nexecs; i++)
        words_free(c->execs[i].argv);
    for (size_t i = 0; i < c->nallows; i++) {
        ere_free(c->allows[i].host);
        ere_free(c->allows[i].ok);
        ere_free(c->allows[i].unless);
    }
    for (size_t i = 0; i < c->naccepts; i++)
        ere_free(c->accepts[i].host);
    free(c->execs);
    free(c->requests);
    free(c->allows);
    free(c->accepts);
    free(c->multicasts);
    free(c->receives);
    free(c->feed_rates);
    free(c->feed_texts);
    memset(c, 0, sizeof *c);
}
