/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fmtp_events.h"
#include "qlog.h"

struct sockaddr_storage parse_endpoint(const char *option, const char *text)
{
    struct sockaddr_storage a;

    if (tp_address_parse(text, true, &a) < 0)
        die_usage("%s '%s'; valid: IP:PORT such as 10.0.0.1:38800 or [ff15::1]:38800", option,
                  text);
    return a;
}

uint64_t parse_rate(const char *option, const char *text)
{
    return strcmp(text, "unlimited") == 0 ? 0 : parse_number(option, text, 1000, 1000000000000);
}

static void take_repair(struct common_options *o, const char *text)
{
    o->unicast_repair = strcmp(text, "unicast") == 0;
    o->no_parity = strcmp(text, "blocks") == 0;
    if (!o->unicast_repair && !o->no_parity && strcmp(text, "multicast") != 0)
        die_usage("--repair '%s'; valid: multicast, blocks and unicast", text);
}

double parse_factor(const char *option, const char *text)
{
    char *end = NULL;
    double x = strtod(text, &end);

    if (end == text || *end || !(x > 0) || x > 1e12)
        die_usage("%s '%s'; valid: numbers above 0", option, text);
    return x;
}

enum fmtp_layout parse_layout(const char *text)
{
    if (strcmp(text, "2017") == 0)
        return FMTP_LAYOUT_2017;
    if (strcmp(text, "2021") != 0)
        die_usage("--layout '%s'; valid: 2021 and 2017", text);
    return FMTP_LAYOUT_2021;
}

static unsigned parse_mac(const char *text)
{
    if (strcmp(text, "auto") == 0)
        return FMTP_MAC_AUTO;
    if (strlen(text) != 1 || *text < '0' || *text > '2')
        die_usage("--mac '%s'; valid: auto, 0, 1 and 2", text);
    return (unsigned)(*text - '0');
}

static void read_key(struct common_options *o, const char *path)
{
    struct tp_error err;

    if (fmtp_key_read(path, o->key, &err) < 0)
        die_usage("%s", err.text);
    o->has_key = true;
}

void take_common_option(struct common_options *o, int option, const char *usage)
{
    switch (option) {
    case OPTION_LAYOUT: o->layout = parse_layout(optarg); break;
    case OPTION_MAC: o->mac_level = parse_mac(optarg); break;
    case OPTION_KEY_FILE: read_key(o, optarg); break;
    case OPTION_PDU: o->pdu_bytes = (unsigned)parse_number("--pdu", optarg, 256, 65504); break;
    case OPTION_REPAIR: take_repair(o, optarg); break;
    case OPTION_CONGESTION_CONTROL: o->congestion_control = optarg; break;
    case OPTION_QLOG:
        o->qlog = qlog_open(optarg, program, FMTP_EVENTS_SCHEMA);
        if (!o->qlog)
            die_usage("--qlog '%s': %s; valid: a directory to write to", optarg, strerror(errno));
        break;
    case OPTION_NO_SANDBOX: o->no_sandbox = true; break;
    case OPTION_HELP: fputs(usage, stdout); exit(EXIT_SUCCESS);
    case OPTION_VERSION:
        printf("%s (Downpour) " DOWNPOUR_VERSION "\n", program);
        exit(EXIT_SUCCESS);
    default: break; /* unreachable: next_option() knows all options */
    }
}

uint32_t read_state(const char *path)
{
    FILE *f = fopen(path, "re");
    char text[64] = "";
    unsigned long long n = 0;

    if (!f && errno == ENOENT)
        return 0;
    if (!f)
        die("'%s': %s", path, strerror(errno));
    size_t len = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[len] = 0;
    const size_t key_len = strlen("next_index ");
    bool good = len > key_len && strncmp(text, "next_index ", key_len) == 0 &&
                text[key_len] >= '0' && text[key_len] <= '9';
    if (good) {
        errno = 0;
        char *end;
        n = strtoull(text + key_len, &end, 10);
        good = !errno && n <= UINT32_MAX && strcmp(end, "\n") == 0 && end + 1 == text + len;
    }
    if (!good) {
        text[strcspn(text, "\n")] = 0;
        die_usage("%s:1: found \"%s\"; valid: next_index and a number up to 4294967295", path,
                  text);
    }
    return (uint32_t)n;
}

void write_state(const char *path, uint32_t next_index)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
        die("'%s': name too long", path);
    FILE *f = fopen(temporary, "we");
    if (!f || fprintf(f, "next_index %u\n", next_index) < 0 || fclose(f) != 0 ||
        rename(temporary, path) < 0)
        die("'%s': %s", temporary, strerror(errno));
}

void safe_name(const void *meta, size_t meta_len, uint32_t index, char *out)
{
    const char *text = meta;
    size_t begin = 0, n = 0;

    for (size_t i = 0; i < meta_len; i++)
        if (text[i] == '/')
            begin = i + 1;
    for (size_t i = begin; i < meta_len && text[i] && n < 200; i++) {
        unsigned char c = (unsigned char)text[i];
        bool bad = c < 0x20 || c == 0x7f || (c == '.' && n == 0);
        out[n++] = bad ? '_' : (char)c;
    }
    if (n)
        out[n] = 0;
    else
        snprintf(out, 256, "product-%u", index);
}
