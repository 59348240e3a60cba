/* SPDX-License-Identifier: Apache-2.0 */
#include "resume.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "common/digest.h"
#include "common/feedtype.h"
#include "common/new_file.h"
#include "common/product_line.h"

#define HEAD "# The last product that came by this request; read when it is repeated.\n"

bool resume_path(char *out, size_t out_bytes, const char *queue, const struct conf_request *req)
{
    const char *slash = strrchr(queue, '/');
    int dir = !slash ? 1 : (int)(slash - queue);
    char text[1024], feed[FEEDTYPE_TEXT_MAX];

    int n = snprintf(text, sizeof text, "%s:%u %s %s", req->host, req->port,
                     feedtype_format(req->feed, feed, sizeof feed), req->ere);
    struct pq_signature sig;
    if (n < 0 || (size_t)n >= sizeof text || !digest_of(text, (size_t)n, &sig))
        return false;
    char hex[33];
    n = snprintf(out, out_bytes, "%.*s/.%s.info", dir, !slash ? "." : queue,
                 signature_format(&sig, hex));
    return n > 0 && (size_t)n < out_bytes;
}

char *resume_format(const struct pq_info *info, char *out, size_t out_bytes)
{
    char when[32] = "";
    time_t at = info->creation.tv_sec;
    struct tm tm;

    if (!gmtime_r(&at, &tm) || strftime(when, sizeof when, "%Y%m%dT%H%M%S", &tm) == 0)
        snprintf(when, sizeof when, "19700101T000000");
    char feed[FEEDTYPE_TEXT_MAX], hex[33];
    snprintf(out, out_bytes, "{%s.%06ld,%s,%u,{%zu,%s},%u,{%zu,%s},%s}", when,
             (long)info->creation.tv_usec, feedtype_format(info->feedtype, feed, sizeof feed),
             info->seqno, strlen(info->origin), info->origin, info->size, strlen(info->ident),
             info->ident, signature_format(&info->signature, hex));
    return out;
}

static bool take(const char **at, char c)
{
    if (**at != c)
        return false;
    ++*at;
    return true;
}

static bool take_u32(const char **at, uint32_t *out)
{
    if (!isdigit((unsigned char)**at))
        return false;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(*at, &end, 10);
    *at = end;
    *out = (uint32_t)v;
    return errno == 0 && v <= UINT32_MAX;
}

/* {length,text} */
static bool take_text(const char **at, char *out, size_t max)
{
    uint32_t n;

    if (!take(at, '{') || !take_u32(at, &n) || !take(at, ',') || n > max || strlen(*at) < n)
        return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n;
    return take(at, '}');
}

static bool take_time(const char **at, struct timeval *out)
{
    struct tm tm = {0};
    const char *dot = strptime(*at, "%Y%m%dT%H%M%S", &tm);
    uint32_t usec;

    if (!dot || !take(&dot, '.') || !take_u32(&dot, &usec) || usec > 999999)
        return false;
    *at = dot;
    out->tv_sec = timegm(&tm);
    out->tv_usec = (suseconds_t)usec;
    return true;
}

static bool take_feed(const char **at, uint32_t *out)
{
    size_t n = strcspn(*at, ",");

    char feed[FEEDTYPE_TEXT_MAX];
    if (n >= sizeof feed)
        return false;
    memcpy(feed, *at, n);
    feed[n] = '\0';
    *at += n;
    char why[300];
    return feedtype_parse(feed, out, why, sizeof why);
}

bool resume_parse(const char *line, struct pq_info *out)
{
    memset(out, 0, sizeof *out);
    if (!take(&line, '{') || !take_time(&line, &out->creation) || !take(&line, ',') ||
        !take_feed(&line, &out->feedtype) || !take(&line, ',') || !take_u32(&line, &out->seqno) ||
        !take(&line, ',') || !take_text(&line, out->origin, PQ_ORIGIN_MAX) || !take(&line, ',') ||
        !take_u32(&line, &out->size) || !take(&line, ',') ||
        !take_text(&line, out->ident, PQ_IDENT_MAX) || !take(&line, ',') || strlen(line) < 33)
        return false;
    char hex[33];
    memcpy(hex, line, 32);
    hex[32] = '\0';
    return line[32] == '}' && signature_parse(hex, &out->signature);
}

bool resume_load(const char *path, struct pq_info *out, struct timeval *written)
{
    FILE *f = fopen(path, "re");
    bool found = false;

    if (!f)
        return false;
    char line[RESUME_LINE_MAX];
    while (!found && fgets(line, sizeof line, f))
        found = line[0] == '{' && resume_parse(line, out);
    struct stat st;
    if (written && fstat(fileno(f), &st) == 0)
        *written = (struct timeval){st.st_mtim.tv_sec, st.st_mtim.tv_nsec / 1000};
    fclose(f);
    return found;
}

int resume_save(const char *path, const struct pq_info *info)
{
    struct new_file file;

    if (new_file_begin(&file, path) < 0)
        return -1;
    fputs(HEAD, file.stream);
    char line[RESUME_LINE_MAX];
    fprintf(file.stream, "%s\n", resume_format(info, line, sizeof line));
    return new_file_end(&file);
}
