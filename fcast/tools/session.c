/* SPDX-License-Identifier: Apache-2.0
 *
 * Session files: SDP with the attributes of FLUTE sessions.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

enum { LINES_MAX = 100, LINE_BYTES = 512 };

static const char *const protocols[] = {"FCAST", "FLUTE", "SEED"}; /* enum fcast_protocol */

struct reader {
    const char *path;
    unsigned line;
    struct session *out;
    char group[TP_ADDRESS_TEXT];
    unsigned port;
    bool has_media;
};

static void wrong(const struct reader *r, const char *line, const char *valid)
{
    die_usage("%s:%u: found \"%s\"; valid: %s", r->path, r->line, line, valid);
}

static void take_line(struct reader *r, const char *line)
{
    char word[TP_ADDRESS_TEXT], proto[16], port[8];
    int end = 0;

    if (strncmp(line, "c=", 2) == 0) {
        if (sscanf(line, "c=IN IP%*1[46] %63[^/ ]", word) != 1)
            wrong(r, line, "c=IN IP4 GROUP/TTL");
        memcpy(r->group, word, sizeof word);
    } else if (strncmp(line, "m=", 2) == 0) {
        if (r->has_media ||
            sscanf(line, "m=application %7[0-9] %15[A-Z]/UDP 0%n", port, proto, &end) != 2 ||
            !end || (r->port = (unsigned)strtoul(port, NULL, 10)) < 1 || r->port > 65535)
            wrong(r, line, "one m=application PORT FCAST/UDP 0 (or FLUTE/UDP, SEED/UDP)");
        r->has_media = true;
        int found = 2;
        while (found >= 0 && strcmp(proto, protocols[found]) != 0)
            found--;
        if (found < 0)
            wrong(r, line, "FCAST/UDP, FLUTE/UDP and SEED/UDP");
        r->out->protocol = (enum fcast_protocol)found;
    } else if (strncmp(line, "a=flute-tsi:", 12) == 0) {
        char *rest;
        errno = 0;
        r->out->tsi = strtoull(line + 12, &rest, 10);
        if (line[12] < '0' || line[12] > '9' || *rest || errno)
            wrong(r, line, "a=flute-tsi:NUMBER");
        r->out->has_tsi = true;
    } else if (strncmp(line, "a=source-filter:", 16) == 0) {
        if (sscanf(line, "a=source-filter: incl IN IP%*1[46] %*s %63s", word) != 1 ||
            tp_address_parse(word, false, &r->out->source) < 0)
            wrong(r, line, "a=source-filter: incl IN IP4 * ADDRESS");
    }
}

void session_read(const char *path, struct session *out)
{
    struct reader r = {.path = path, .out = out};
    FILE *f = fopen(path, "re");
    char line[LINE_BYTES], text[TP_ADDRESS_TEXT + 16];

    *out = (struct session){0};
    if (!f)
        die_usage("--session '%s': %s", path, strerror(errno));
    while (r.line < LINES_MAX && fgets(line, sizeof line, f)) {
        r.line++;
        line[strcspn(line, "\r\n")] = '\0';
        take_line(&r, line);
    }
    fclose(f);
    snprintf(text, sizeof text, strchr(r.group, ':') ? "[%s]:%u" : "%s:%u", r.group, r.port);
    if (!r.has_media || tp_address_parse(text, true, &out->group) < 0 ||
        !tp_address_is_multicast(&out->group))
        die_usage("%s: found no multicast group; valid: lines c= and m= of a session", path);
}

void session_write(const char *path, const struct session *s, unsigned ttl)
{
    char group[TP_ADDRESS_TEXT], source[TP_ADDRESS_TEXT], temporary[4096];
    struct sockaddr_storage host = s->group, from = s->source;
    const char *ip = s->group.ss_family == AF_INET6 ? "IP6" : "IP4";

    tp_address_set_port(&host, 0);
    tp_address_set_port(&from, 0);
    tp_address_text((const struct sockaddr *)&host, group);
    tp_address_text((const struct sockaddr *)&from, source);
    if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
        die("--sdp '%s': name too long", path);
    FILE *f = fopen(temporary, "we");
    if (!f)
        die("--sdp '%s': %s", temporary, strerror(errno));
    fprintf(f, "v=0\r\no=- %llu 1 IN %s %s\r\ns=Fcast session\r\n", (unsigned long long)s->tsi, ip,
            source);
    if (s->group.ss_family == AF_INET6)
        fprintf(f, "c=IN IP6 %s\r\n", group);
    else
        fprintf(f, "c=IN IP4 %s/%u\r\n", group, ttl);
    fprintf(f,
            "t=0 0\r\na=source-filter: incl IN %s * %s\r\na=flute-tsi:%llu\r\n"
            "m=application %u %s/UDP 0\r\n",
            ip, source, (unsigned long long)s->tsi, tp_address_port(&s->group),
            protocols[s->protocol]);
    bool is_written = !ferror(f);
    if (fclose(f) != 0 || !is_written || rename(temporary, path) < 0) {
        int why = errno;
        remove(temporary);
        die("--sdp '%s': %s", path, strerror(why));
    }
}
