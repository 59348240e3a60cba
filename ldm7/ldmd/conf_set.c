/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of ldmd.conf: SET name value.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/feedtype.h"
#include "conf.h"

enum kind {
    KIND_REAL,
    KIND_UINT,
    KIND_U8,
    KIND_BOOL,
    KIND_LAYOUT,
    KIND_MAC,
    KIND_REPAIR,
    KIND_TIMER,
    KIND_TIMER_BY,
    KIND_SWITCH,
    KIND_WORD,
    KIND_PATH,
    KIND_SERVICE,
    KIND_TEMPLATE,
    KIND_NIC
};
#define AT(member) offsetof(struct conf_settings, member)
static const struct setting {
    const char *name;
    enum kind kind;
    size_t offset;
    double min, max;
    const char *valid;
} settings[] = {
    {"fmtp.layout", KIND_LAYOUT, AT(fmtp_layout), 2017, 2021, "2017 or 2021"},
    {"fmtp.f_snd", KIND_REAL, AT(f_snd), 0, 1e12, "a number from 0 to 1e12"},
    {"fmtp.f_rcv", KIND_REAL, AT(f_rcv), 0, 1e12, "a number from 0 to 1e12"},
    {"fmtp.r_mc_bps", KIND_UINT, AT(r_mc_bps), 1000, 1e12,
     "an integer from 1000 to 1e12, in bit/s"},
    {"fmtp.b_rcv_bytes", KIND_UINT, AT(b_rcv_bytes), 2048, 1 << 30,
     "an integer from 2048 to 1073741824, in bytes"},
    {"fmtp.b_snd_bytes", KIND_UINT, AT(b_snd_bytes), 0, 1 << 30,
     "an integer from 0 (the system's default) to 1073741824, in bytes"},
    {"fmtp.blocking", KIND_SWITCH, AT(blocking), 0, 1, "on or off"},
    {"fmtp.handover_us", KIND_REAL, AT(handover_us), 0, 1e6,
     "a number from 0 to 1e6, in microseconds for each datagram"},
    {"fmtp.r_uc_bps", KIND_UINT, AT(r_uc_bps), 0, 1e12,
     "an integer from 0 (no limit) to 1e12, in bit/s"},
    {"fmtp.held_products", KIND_UINT, AT(held_products), 0, 1e9,
     "an integer from 0 (no limit) to 1e9"},
    {"fmtp.held_s", KIND_UINT, AT(held_s), 0, 1e9,
     "an integer from 0 (no limit) to 1e9, in seconds"},
    {"fmtp.held_share", KIND_REAL, AT(held_share), 0, 1, "a number from 0 (no limit) to 1"},
    {"fmtp.pdu_bytes", KIND_UINT, AT(pdu_bytes), 0, 65504,
     "0 (automatic) or an integer from 256 to 65504"},
    {"fmtp.key_file", KIND_PATH, AT(key_file), 1, CONF_TEXT - 1,
     "1 to 255 bytes: the path of a file"},
    {"fmtp.mac_level", KIND_MAC, AT(mac_level), 0, 2,
     "auto, 0 (none), 1 (HMAC-SHA256) or 2 (Ed25519)"},
    {"fmtp.repair", KIND_REPAIR, AT(repair), 0, 2, "unicast, multicast or blocks"},
    {"fmtp.timer_by", KIND_TIMER_BY, AT(timer_by_handover), 0, 1, "rate or handover"},
    {"fmtp.timer_from", KIND_TIMER, AT(timer_from_bop), 0, 1, "bop or eop"},
    {"fmtp.ttl", KIND_U8, AT(ttl), 1, 255, "an integer from 1 to 255"},
    {"ldm6.congestion_control", KIND_WORD, AT(congestion_control), 1,
     sizeof((struct conf_settings *)0)->congestion_control - 1,
     "1 to 15 letters, digits, - or _: a name in net.ipv4.tcp_available_congestion_control"},
    {"ldm6.max_latency_s", KIND_REAL, AT(max_latency_s), 1, 1e9,
     "a number from 1 to 1e9, in seconds"},
    {"ldm6.time_offset_s", KIND_REAL, AT(time_offset_s), 0, 1e9,
     "a number from 0 to 1e9, in seconds"},
    {"ldm6.anti_dos", KIND_BOOL, AT(anti_dos), 0, 1, "0 or 1"},
    {"ldm6.verify_md5", KIND_U8, AT(verify_md5_6), 0, 2,
     "0 (none), 1 (products that peers push) or 2 (requested ones as well)"},
    {"ldm7.dead_s", KIND_UINT, AT(dead_s), 3, 3600, "an integer from 3 to 3600, in seconds"},
    {"ldm7.fallback", KIND_BOOL, AT(fallback), 0, 1, "0 or 1"},
    {"ldm7.nic", KIND_NIC, AT(nic), 1, sizeof((struct conf_settings *)0)->nic - 1,
     "1 to 15 letters, digits, ., _ or -: the name of an interface"},
    {"ldm7.nic_buffer_bytes", KIND_UINT, AT(nic_buffer_bytes), 0, 4e9,
     "an integer from 0 (no traffic control) to 4e9, in bytes"},
    {"ldm7.nic_tags", KIND_BOOL, AT(nic_tags), 0, 1, "0 or 1"},
    {"ldm7.retry_s", KIND_UINT, AT(retry_s), 1, 86400, "an integer from 1 to 86400, in seconds"},
    {"ldm7.vlanutil", KIND_PATH, AT(vlanutil), 1, CONF_TEXT - 1,
     "1 to 255 bytes: the path of vlanutil, or its name in PATH"},
    {"ldm7.verify_md5", KIND_BOOL, AT(verify_md5), 0, 1, "0 or 1"},
    {"ldmd.sandbox", KIND_SWITCH, AT(sandbox), 0, 1, "on or off"},
    {"ldmd.stats", KIND_SWITCH, AT(stats), 0, 1, "on or off"},
    {"path.ca_file", KIND_PATH, AT(path_ca_file), 1, CONF_TEXT - 1,
     "1 to 255 bytes: the path of a file"},
    {"path.grace_s", KIND_UINT, AT(path_grace_s), 0, 86400,
     "an integer from 0 to 86400, in seconds"},
    {"path.name", KIND_TEMPLATE, AT(path_name), 6, 64,
     "6 to 64 letters, digits, ., _ or -, with {feed} among them"},
    {"path.rate_bps", KIND_UINT, AT(path_rate_bps), 0, 1e12,
     "an integer from 0 (no guarantee) to 1e12, in bit/s"},
    {"path.service", KIND_SERVICE, AT(path_service), 1, CONF_SERVICES - 1,
     "unix:/PATH (at most 107 bytes), http://HOST[:PORT] or https://HOST[:PORT], or several of them with "
     "commas between"},
    {"path.timeout_s", KIND_UINT, AT(path_timeout_s), 1, 600,
     "an integer from 1 to 600, in seconds"},
    {"path.token_file", KIND_PATH, AT(path_token_file), 1, CONF_TEXT - 1,
     "1 to 255 bytes: the path of a file"},
};
enum { NSETTINGS = sizeof settings / sizeof settings[0] };

void conf_set_defaults(struct conf_settings *set)
{
    *set = (struct conf_settings){.fmtp_layout = 2021,
                                  .mac_level = CONF_MAC_AUTO,
                                  .verify_md5 = true,
                                  .f_snd = 5000,
                                  .f_rcv = 20,
                                  .r_mc_bps = 20000000,
                                  .b_rcv_bytes = 8u << 20,
                                  .held_products = 4000,
                                  .held_share = 0.5,
                                  .held_s = 3600,
                                  .ttl = 1,
                                  .max_latency_s = 3600,
                                  .time_offset_s = -1,
                                  .anti_dos = true,
                                  .verify_md5_6 = VERIFY_PUSHED,
                                  .fallback = true,
                                  .retry_s = 60,
                                  .sandbox = true,
                                  .stats = true,
                                  .dead_s = 60,
                                  .nic_tags = true,
                                  .nic_buffer_bytes = 600000000,
                                  .vlanutil = "vlanutil",
                                  .path_name = "{feed}",
                                  .path_rate_bps = CONF_PATH_RATE_AS_FMTP,
                                  .path_timeout_s = 30,
                                  .path_grace_s = 30};
}

static bool set_repair(char *at, const char *value)
{
    static const char *const words[] = {
        [CONF_REPAIR_MULTICAST] = "multicast",
        [CONF_REPAIR_BLOCKS] = "blocks",
        [CONF_REPAIR_UNICAST] = "unicast",
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0) {
            *(uint8_t *)at = (uint8_t)i;
            return true;
        }
    return false;
}

static bool set_either(char *at, const char *value, const char *yes, const char *no)
{
    *(bool *)at = strcasecmp(value, yes) == 0;
    return *(bool *)at || strcasecmp(value, no) == 0;
}

/* Takes a word; min and max bound its length. */
static bool set_word(char *at, const struct setting *s, const char *value)
{
    size_t n = strlen(value);

    if ((double)n < s->min || (double)n > s->max)
        return false;
    for (const char *c = value; s->kind == KIND_WORD && *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_')
            return false;
    memcpy(at, value, n + 1);
    return true;
}

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define UNIX_PATH_MAX_BYTES 107

static bool is_service(const char *value, size_t n)
{
    size_t scheme = strncmp(value, "http://", 7) == 0    ? 7
                    : strncmp(value, "https://", 8) == 0 ? 8
                                                         : 0;

    if (strncmp(value, "unix:/", 6) == 0)
        return n <= 5 + UNIX_PATH_MAX_BYTES;
    return scheme != 0 && n > scheme && scheme + strspn(value + scheme, NAME_CHARACTERS ":[]") == n;
}

static bool are_services(const char *value)
{
    for (;; value++) {
        size_t n = strcspn(value, ",");

        if (!is_service(value, n))
            return false;
        value += n;
        if (*value == '\0')
            return true;
    }
}

static bool is_template(const char *value)
{
    const char *feed = strstr(value, "{feed}");

    return feed && strspn(value, NAME_CHARACTERS) == (size_t)(feed - value) &&
           strspn(feed + 6, NAME_CHARACTERS) == strlen(feed + 6);
}

static bool set_text(char *at, const struct setting *s, const char *value)
{
    return (s->kind != KIND_SERVICE || are_services(value)) &&
           (s->kind != KIND_TEMPLATE || is_template(value)) &&
           (s->kind != KIND_NIC ||
            (value[0] != '-' && value[strspn(value, NAME_CHARACTERS)] == '\0')) &&
           set_word(at, s, value);
}

static bool set_number(char *at, const struct setting *s, const char *value)
{
    if (s->kind == KIND_MAC && strcasecmp(value, "auto") == 0) {
        *(uint8_t *)at = CONF_MAC_AUTO;
        return true;
    }
    errno = 0;
    char *end;
    double v = strtod(value, &end);
    if (errno != 0 || end == value || *end != '\0' || !isfinite(v) || v < s->min || v > s->max ||
        (s->kind != KIND_REAL && v != floor(v)) ||
        (s->kind == KIND_LAYOUT && v != 2017 && v != 2021))
        return false;
    switch (s->kind) {
    case KIND_REAL: memcpy(at, &v, sizeof v); break;
    case KIND_UINT: memcpy(at, &(uint64_t){(uint64_t)v}, sizeof(uint64_t)); break;
    case KIND_LAYOUT: memcpy(at, &(unsigned){(unsigned)v}, sizeof(unsigned)); break;
    case KIND_MAC:
    case KIND_U8: *(uint8_t *)at = (uint8_t)v; break;
    default: *(bool *)at = v != 0; break;
    }
    return true;
}

enum conf_set_result conf_set(struct conf_settings *set, const char *name, const char *value,
                              char *valid, size_t valid_bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < NSETTINGS; i++) {
        const struct setting *s = &settings[i];
        char *at = (char *)set + s->offset;

        if (strcasecmp(name, s->name) != 0)
            continue;
        if (s->kind == KIND_WORD || s->kind >= KIND_PATH ? set_text(at, s, value)
            : s->kind == KIND_REPAIR                     ? set_repair(at, value)
            : s->kind == KIND_TIMER                      ? set_either(at, value, "bop", "eop")
            : s->kind == KIND_TIMER_BY                   ? set_either(at, value, "handover", "rate")
            : s->kind == KIND_SWITCH                     ? set_either(at, value, "on", "off")
                                                         : set_number(at, s, value))
            return CONF_SET_OK;
        snprintf(valid, valid_bytes, "%s", s->valid);
        return CONF_SET_VALUE;
    }
    for (size_t i = 0; i < NSETTINGS && used < valid_bytes; i++)
        used += (size_t)snprintf(valid + used, valid_bytes - used, "%s%s", i > 0 ? ", " : "",
                                 settings[i].name);
    return CONF_SET_NAME;
}

char *conf_path_name(const struct conf_settings *set, uint32_t feed, char out[CONF_PATH_NAME])
{
    const char *at = strstr(set->path_name, "{feed}");
    int before = (int)(at - set->path_name);

    char name[FEEDTYPE_TEXT_MAX];
    feedtype_format(feed, name, sizeof name);
    if (strlen(name) + strlen(set->path_name) - 6 >= CONF_PATH_NAME)
        snprintf(name, sizeof name, "0x%08x", feed);
    for (char *c = name; *c != '\0'; c++)
        if (!strchr(NAME_CHARACTERS, *c))
            *c = '-';
    char text[FEEDTYPE_TEXT_MAX + CONF_TEXT];
    snprintf(text, sizeof text, "%.*s%s%s", before, set->path_name, name, at + 6);
    text[CONF_PATH_NAME - 1] = '\0';
    memcpy(out, text, CONF_PATH_NAME);
    return out;
}
