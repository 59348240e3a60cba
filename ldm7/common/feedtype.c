/* SPDX-License-Identifier: Apache-2.0 */
#include "feedtype.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Names of the sets; the first name of a value is the one printed. Values descend: this is the
 * order in which an arbitrary set is written. */
static const struct {
    uint32_t bits;
    const char *name;
} names[] = {
    {0xFFFFFFFFu, "ANY"},     {0x40000000u, "EXP"},       {0x40000000u, "FT30"},
    {0x20000000u, "NXRDSRC"}, {0x20000000u, "FT29"},      {0x10000000u, "NEXRAD2"},
    {0x10000000u, "NEXRD2"},  {0x10000000u, "CRAFT"},     {0x10000000u, "FT28"},
    {0x08000000u, "NEXRAD3"}, {0x08000000u, "NNEXRAD"},   {0x08000000u, "NEXRAD"},
    {0x08000000u, "FT27"},    {0x07C00000u, "NPORT"},     {0x04000000u, "NOTHER"},
    {0x04000000u, "OTHER"},   {0x04000000u, "FT26"},      {0x02000000u, "NGRAPH"},
    {0x02000000u, "GRAPH"},   {0x02000000u, "FT25"},      {0x01000000u, "NPOINT"},
    {0x01000000u, "POINT"},   {0x01000000u, "NBUFR"},     {0x01000000u, "BUFR"},
    {0x01000000u, "FT24"},    {0x00800000u, "NGRID"},     {0x00800000u, "GRID"},
    {0x00800000u, "FT23"},    {0x00400000u, "NTEXT"},     {0x00400000u, "TEXT"},
    {0x00400000u, "FT22"},    {0x00200000u, "NIMAGE"},    {0x00200000u, "IMAGE"},
    {0x00200000u, "FT21"},    {0x00100000u, "GEM"},       {0x00100000u, "CMC"},
    {0x00100000u, "FT20"},    {0x00080000u, "FNMOC"},     {0x00080000u, "NOGAPS"},
    {0x00080000u, "SEISMIC"}, {0x00080000u, "FT19"},      {0x00040000u, "GPS"},
    {0x00040000u, "FT18"},    {0x00020000u, "FAA604"},    {0x00020000u, "FAA"},
    {0x00020000u, "604"},     {0x00020000u, "FT17"},      {0x00010000u, "SATELLITE"},
    {0x00010000u, "DIFAX"},   {0x00010000u, "FT16"},      {0x00008000u, "WSI"},
    {0x00008000u, "FT15"},    {0x00004000u, "LIGHTNING"}, {0x00004000u, "NLDN"},
    {0x00004000u, "FT14"},    {0x00003800u, "NMC"},       {0x00002000u, "FNEXRAD"},
    {0x00002000u, "NMC3"},    {0x00002000u, "FT13"},      {0x00001000u, "CONDUIT"},
    {0x00001000u, "NMC2"},    {0x00001000u, "NCEPH"},     {0x00001000u, "FT12"},
    {0x00000800u, "GPSSRC"},  {0x00000800u, "AFOS"},      {0x00000800u, "NMC1"},
    {0x00000800u, "FT11"},    {0x000007C0u, "FSL"},       {0x000007C0u, "PROFS"},
    {0x00000400u, "FSL5"},    {0x00000400u, "FT10"},      {0x00000200u, "FSL4"},
    {0x00000200u, "FT9"},     {0x00000100u, "FSL3"},      {0x00000100u, "FT8"},
    {0x00000080u, "FSL2"},    {0x00000080u, "PROFILER"},  {0x00000080u, "FT7"},
    {0x00000040u, "PCWS"},    {0x00000040u, "ACARS"},     {0x00000040u, "FT6"},
    {0x0000002Fu, "UNIDATA"}, {0x00000020u, "UNIWISC"},   {0x00000020u, "MCIDAS"},
    {0x00000020u, "FT5"},     {0x00000010u, "SPARE"},     {0x00000010u, "NPS"},
    {0x00000010u, "FT4"},     {0x0000000Fu, "WMO"},       {0x00000008u, "IDS"},
    {0x00000008u, "INTNL"},   {0x00000008u, "FT3"},       {0x00000004u, "HDS"},
    {0x00000004u, "HRS"},     {0x00000004u, "FT2"},       {0x00000003u, "DDPLUS"},
    {0x00000002u, "DDS"},     {0x00000002u, "DOMESTIC"},  {0x00000002u, "FT1"},
    {0x00000001u, "PPS"},     {0x00000001u, "FT0"},       {0x00000000u, "NONE"},
};
enum { NAMES = sizeof names / sizeof names[0], DEPTH_MAX = 32 };

struct parser {
    const char *start, *at;
    char *err;
    size_t err_bytes;
};

static bool fail(struct parser *p, const char *what, const char *found, size_t len)
{
    if (len > 40)
        len = 40;
    snprintf(
        p->err, p->err_bytes,
        "feed type \"%.80s\": %s \"%.*s\"; valid: names such as NGRID, EXP, ANY joined by | + -, ~, ( )",
        p->start, what, (int)len, found);
    return false;
}

static void skip_blanks(struct parser *p)
{
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
}

static bool union_of(struct parser *p, unsigned depth, uint32_t *out);

static bool primary(struct parser *p, unsigned depth, uint32_t *out)
{
    bool invert = false;
    for (skip_blanks(p); *p->at == '~'; skip_blanks(p)) {
        invert = !invert;
        p->at++;
    }
    if (*p->at == '(') {
        if (depth >= DEPTH_MAX)
            return fail(p, "parentheses nested too deeply at", p->at, strlen(p->at));
        p->at++;
        if (!union_of(p, depth + 1, out))
            return false;
        skip_blanks(p);
        if (*p->at != ')')
            return fail(p, "\")\" missing before", p->at, strlen(p->at));
        p->at++;
    } else {
        size_t len = 0;
        while (isalnum((unsigned char)p->at[len]) || p->at[len] == '_')
            len++;
        if (len == 0)
            return *p->at ? fail(p, "unexpected", p->at, 1)
                          : fail(p, "a name is missing at", "", 0);
        size_t i = 0;
        while (i < NAMES &&
               (strlen(names[i].name) != len || strncasecmp(names[i].name, p->at, len) != 0))
            i++;
        if (i == NAMES)
            return fail(p, "unknown name", p->at, len);
        *out = names[i].bits;
        p->at += len;
    }
    if (invert)
        *out = ~*out;
    return true;
}

static bool union_of(struct parser *p, unsigned depth, uint32_t *out)
{
    if (!primary(p, depth, out))
        return false;
    for (;;) {
        skip_blanks(p);
        char op = *p->at;
        if (op != '|' && op != '+' && op != '-')
            return true;
        p->at++;
        uint32_t right = 0;
        if (!primary(p, depth, &right))
            return false;
        *out = op == '-' ? *out & ~right : *out | right;
    }
}

bool feedtype_parse(const char *text, uint32_t *out, char *err, size_t err_bytes)
{
    struct parser p = {.start = text, .at = text, .err = err, .err_bytes = err_bytes};
    uint32_t bits = 0;
    if (!union_of(&p, 0, &bits))
        return false;
    if (*p.at)
        return fail(&p, "unexpected", p.at, strlen(p.at));
    *out = bits;
    return true;
}

char *feedtype_format(uint32_t feedtype, char *out, size_t out_bytes)
{
    size_t used = 0;
    uint32_t left = feedtype;
    if (out_bytes)
        out[0] = 0;
    if (!feedtype) {
        snprintf(out, out_bytes, "NONE");
        return out;
    }
    for (size_t i = 0; i < NAMES && left; i++) {
        if (!names[i].bits || (left & names[i].bits) != names[i].bits)
            continue;
        int n = snprintf(out + used, out_bytes - used, "%s%s", used ? "|" : "", names[i].name);
        if (n < 0 || (size_t)n >= out_bytes - used)
            return out;
        used += (size_t)n;
        left &= ~names[i].bits;
    }
    if (left)
        snprintf(out + used, out_bytes - used, "%s0x%08x", used ? "|" : "", left);
    return out;
}
