/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/product_line.h"

/* "<signature> <creation, seconds since 1970>
 * ", always of the same length */
#define RECORD_BYTES 54u

static bool parse(const char *text, struct pq_signature *last)
{
    char hex[33];

    snprintf(hex, sizeof hex, "%.32s", text);
    return text[32] == ' ' && text[RECORD_BYTES - 1] == '\n' && signature_parse(hex, last);
}

int state_open(struct state *s, const char *path, struct pq_signature *last, bool *known, char *err,
               size_t err_bytes)
{
    char text[RECORD_BYTES + 2] = "";

    *known = false;
    s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (s->fd < 0) {
        snprintf(err, err_bytes,
                 "state file \"%s\" cannot be opened: %s (--state names another place)", path,
                 strerror(errno));
        return -1;
    }
    ssize_t n;
    if (flock(s->fd, LOCK_EX | LOCK_NB) < 0) {
        snprintf(err, err_bytes,
                 "state file \"%s\" is in use: another pqact works with this configuration", path);
    } else if ((n = pread(s->fd, text, RECORD_BYTES + 1, 0)) < 0) {
        snprintf(err, err_bytes, "state file \"%s\" cannot be read: %s", path, strerror(errno));
    } else if (n > 0 && (n != RECORD_BYTES || !parse(text, last))) {
        snprintf(err, err_bytes,
                 "\"%s\" is not a state file of pqact; valid: one of its own, or none", path);
    } else {
        *known = n > 0;
        return 0;
    }
    close(s->fd);
    s->fd = -1;
    return -1;
}

bool state_put(struct state *s, const struct pq_info *info)
{
    char text[RECORD_BYTES + 1], hex[33];

    snprintf(text, sizeof text, "%s %20lld\n", signature_format(&info->signature, hex),
             (long long)info->creation.tv_sec);
    return pwrite(s->fd, text, RECORD_BYTES, 0) == RECORD_BYTES;
}

void state_close(struct state *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}
