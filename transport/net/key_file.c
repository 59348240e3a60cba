/* SPDX-License-Identifier: Apache-2.0 */
#include "key_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 4096, DIGITS = 2 * TP_KEY_BYTES };

static const char valid[] = "valid: one line of 64 hexadecimal digits, as of openssl rand -hex 32";

static int value(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* Never show the line's content: it may be the key with one wrong digit. */
static int take_line(const char *path, unsigned number, const char *line, size_t len,
                     uint8_t key[TP_KEY_BYTES], struct tp_error *err)
{
    for (size_t i = 0; i < len; i++)
        if (!isxdigit((unsigned char)line[i]))
            return tp_fail(err, "%s:%u: found no hexadecimal digit in column %zu; %s", path, number,
                           i + 1, valid);
    if (len != DIGITS)
        return tp_fail(err, "%s:%u: found %zu digits; %s", path, number, len, valid);
    for (size_t i = 0; i < TP_KEY_BYTES; i++)
        key[i] = (uint8_t)(value(line[2 * i]) << 4 | value(line[2 * i + 1]));
    return 0;
}

static int parse(const char *path, const char *text, size_t len, uint8_t key[TP_KEY_BYTES],
                 struct tp_error *err)
{
    bool found = false;
    unsigned number = 0;

    for (size_t at = 0; at < len;) {
        const char *line = text + at, *end = memchr(line, '\n', len - at);
        size_t n = end ? (size_t)(end - line) : len - at;
        at += n + 1;
        number++;
        while (n && isspace((unsigned char)line[n - 1]))
            n--;
        if (!n || *line == '#')
            continue;
        if (found)
            return tp_fail(err, "%s:%u: found another line; %s", path, number, valid);
        if (take_line(path, number, line, n, key, err) < 0)
            return -1;
        found = true;
    }
    return found ? 0 : tp_fail(err, "%s:1: found no key; %s", path, valid);
}

int tp_key_read(const char *path, mode_t forbidden, uint8_t key[TP_KEY_BYTES], struct tp_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int rc;

    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = tp_fail(err, "%s:1: %s; valid: a file with a key", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        rc = tp_fail(err, "%s:1: found no regular file; valid: a file with a key", path);
    } else if (st.st_mode & forbidden) {
        rc = tp_fail(err, "%s:1: found mode %04o; valid: %s (chmod 600)", path,
                     (unsigned)st.st_mode & 07777u,
                     forbidden & S_IRGRP ? "0400 or 0600" : "0400, 0600 or 0640");
    } else {
        char text[FILE_MAX + 1];
        ssize_t n = read(fd, text, sizeof text);
        if (n < 0)
            rc = tp_fail(err, "%s:1: %s; valid: a file with a key", path, strerror(errno));
        else if (n > FILE_MAX)
            rc = tp_fail(err, "%s:1: found more than %d bytes; %s", path, FILE_MAX, valid);
        else
            rc = parse(path, text, (size_t)n, key, err);
        explicit_bzero(text, sizeof text);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}
