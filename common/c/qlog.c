/* SPDX-License-Identifier: Apache-2.0 */
#include "qlog.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define RECORD_BYTES 4096u

struct qlog {
    int fd;
};

/* If the disk is full, the record is lost and the program continues. */
static void put(const struct qlog *q, const char *record, size_t bytes)
{
    ssize_t n;

    do
        n = write(q->fd, record, bytes);
    while (n < 0 && errno == EINTR);
}

struct qlog *qlog_open(const char *dir, const char *program, const char *schema)
{
    char path[PATH_MAX], head[1024];
    long long now = (long long)time(NULL);
    int n = snprintf(path, sizeof path, "%s/%s.%lld.%d.sqlog", dir, program, now, (int)getpid());

    errno = ENAMETOOLONG;
    struct qlog *q = n > 0 && (size_t)n < sizeof path ? malloc(sizeof *q) : NULL;
    if (!q)
        return NULL;
    q->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (q->fd < 0) {
        free(q);
        return NULL;
    }
    n = snprintf(head, sizeof head,
                 "\x1e{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\","
                 "\"serialization_format\":\"application/qlog+json-seq\","
                 "\"trace\":{\"vantage_point\":{\"name\":\"%s.%d\"},"
                 "\"common_fields\":{\"time_format\":\"relative_to_epoch\",\"reference_time\":"
                 "{\"clock_type\":\"system\",\"epoch\":\"1970-01-01T00:00:00.000Z\"}},"
                 "\"event_schemas\":[\"%s\"]}}\n",
                 program, (int)getpid(), schema);
    if (n > 0 && (size_t)n < sizeof head)
        put(q, head, (size_t)n);
    return q;
}

void qlog_close(struct qlog *q)
{
    if (!q)
        return;
    close(q->fd);
    free(q);
}

void qlog_event(struct qlog *q, const char *name, const char *fields, ...)
{
    char record[RECORD_BYTES];
    struct timespec now;
    va_list values;

    if (!q)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    int n =
        snprintf(record, sizeof record, "\x1e{\"time\":%lld%03ld.%03ld,\"name\":\"%s\",\"data\":{",
                 (long long)now.tv_sec, now.tv_nsec / 1000000, now.tv_nsec / 1000 % 1000, name);
    va_start(values, fields);
    int more = vsnprintf(record + n, sizeof record - (size_t)n, fields, values);
    va_end(values);
    size_t end = (size_t)n + (size_t)more;
    if (more < 0 || end + 4 > sizeof record)
        return;
    record[end++] = '}';
    record[end++] = '}';
    record[end++] = '\n';
    put(q, record, end);
}

const char *qlog_text(char out[QLOG_TEXT], const char *text)
{
    size_t n = 0;

    out[n++] = '"';
    for (const char *at = text; *at != '\0' && n + 3 < QLOG_TEXT; at++) {
        if (*at == '"' || *at == '\\')
            out[n++] = '\\';
        out[n++] = *at >= 0x20 && *at < 0x7f ? *at : '?';
    }
    out[n++] = '"';
    out[n] = '\0';
    return out;
}
