/* SPDX-License-Identifier: Apache-2.0 */
#include "paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ldmdlog.h"

/* Takes the text after `key`, up to a comma or the end of the line. */
static bool take_text(const char *message, const char *key, char *out, size_t out_bytes)
{
    const char *at = strstr(message, key);

    if (!at)
        return false;
    at += strlen(key);
    size_t bytes = strcspn(at, ",\n");
    if (bytes == 0 || bytes >= out_bytes)
        return false;
    memcpy(out, at, bytes);
    out[bytes] = '\0';
    return true;
}

static bool take_number(const char *message, const char *key, uint64_t *out)
{
    char text[24], *end;

    if (!take_text(message, key, text, sizeof text) || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    *out = number;
    return true;
}

static struct feed_path *find(struct paths *p, long pid)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].pid == pid)
            return &p->list[i];
    return NULL;
}

/* Finds a place for a process that starts: one whose path is gone, or a new one. */
static struct feed_path *place(struct paths *p, long pid)
{
    struct feed_path *found = find(p, pid);

    for (size_t i = 0; i < p->n && !found; i++)
        if (!p->list[i].ready)
            found = &p->list[i];
    if (!found && p->n < PATHS_MAX)
        found = &p->list[p->n++];
    return found;
}

static void start(struct paths *p, long pid, const char *message)
{
    char text[FEEDTYPE_TEXT_MAX], why[300];
    uint32_t feed;
    struct feed_path *path;

    if (take_text(message, "feed=", text, sizeof text) &&
        feedtype_parse(text, &feed, why, sizeof why) && (path = place(p, pid))) {
        *path = (struct feed_path){.pid = pid};
        feedtype_format(feed, path->feed, sizeof path->feed);
    }
}

static void become_ready(struct paths *p, struct feed_path *path, const char *message)
{
    struct feed_path new = *path;

    if (!take_text(message, "path=", new.name, sizeof new.name) ||
        !take_number(message, "rate_bps=", &new.rate_bps) ||
        !take_number(message, "leaves=", &new.leaves))
        return;
    /* The path of an mldm that ended without deleting it. */
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->list[i].name, new.name) == 0)
            p->list[i].ready = false;
    new.ready = true;
    *path = new;
}

static bool begins(const char **text, const char *with)
{
    size_t bytes = strlen(with);

    if (strncmp(*text, with, bytes) != 0)
        return false;
    *text += bytes;
    return true;
}

void paths_take(struct paths *p, const char *line)
{
    struct timeval at;
    long pid;
    const char *message = ldmdlog_message(line, "mldm", &at, &pid);

    if (!message)
        return;
    if (begins(&message, "Starting up: ")) {
        start(p, pid, message);
        return;
    }
    struct feed_path *path = find(p, pid);
    if (!path || !begins(&message, "Path service: "))
        return;
    if (begins(&message, "path ready: "))
        become_ready(p, path, message);
    else if (begins(&message, "leaf "))
        take_number(message, "leaves=", &path->leaves);
    else if (begins(&message, "path deleted: ") || begins(&message, "replaced: "))
        path->ready = false;
}

char *path_format(const struct feed_path *path, time_t end, const char *host,
                  char out[PATH_LINE_MAX])
{
    char when[32] = "?";
    struct tm tm;

    if (gmtime_r(&end, &tm))
        strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &tm);
    snprintf(out, PATH_LINE_MAX, "%s,%.255s,%s,%s,%llu,%llu\n", when, host, path->feed, path->name,
             (unsigned long long)path->rate_bps, (unsigned long long)path->leaves);
    return out;
}
