/* SPDX-License-Identifier: Apache-2.0 */
#include "outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/log.h"

#define BUFFER_BYTES 65536u
#define PIPE_BYTES (1 << 20)

struct output {
    struct output *next;
    enum output_kind kind;
    int fd;
    pid_t pid; /* OUTPUT_PIPE */
    bool is_new;
    char *buffer; /* OUTPUT_BUFFERED: BUFFER_BYTES, of which: */
    size_t buffered;
    size_t key_bytes;
    char key[];
};

void outputs_init(struct outputs *o, unsigned max, struct datadir *dir, struct commands *commands)
{
    *o = (struct outputs){.max = max, .dir = dir, .commands = commands};
}

static bool write_file(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes < (1u << 30) ? bytes : 1u << 30);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_pipe(struct outputs *o, struct output *out, const char *data, size_t bytes)
{
    uint64_t timeout_ns = (uint64_t)(o->commands->timeout_s * 1e9),
             until = command_now_ns() + timeout_ns;

    while (bytes > 0) {
        ssize_t n = write(out->fd, data, bytes < (1u << 30) ? bytes : 1u << 30);

        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
            until = command_now_ns() + timeout_ns;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return false;
        } else if (!command_wait_writable(o->commands, out->fd, until)) {
            int e = errno;

            if (e == ETIMEDOUT)
                command_kill(o->commands, out->pid, "does not read its standard input");
            errno = e;
            return false;
        }
    }
    return true;
}

static bool flush_buffer(struct output *out)
{
    size_t n = out->buffered;

    out->buffered = 0;
    return n == 0 || write_file(out->fd, out->buffer, n);
}

bool output_write(struct outputs *o, struct output *out, const void *data, size_t bytes)
{
    if (out->kind == OUTPUT_PIPE)
        return write_pipe(o, out, data, bytes);
    if (out->kind == OUTPUT_FILE)
        return write_file(out->fd, data, bytes);
    if (bytes > BUFFER_BYTES - out->buffered && !flush_buffer(out))
        return false;
    if (bytes > BUFFER_BYTES)
        return write_file(out->fd, data, bytes);
    memcpy(out->buffer + out->buffered, data, bytes);
    out->buffered += bytes;
    return true;
}

bool output_sync(struct outputs *o, struct output *out)
{
    (void)o;
    return out->kind == OUTPUT_PIPE || (flush_buffer(out) && fdatasync(out->fd) == 0);
}

static void unlink_output(struct outputs *o, const struct output *out)
{
    struct output **at = &o->list;

    while (*at != out)
        at = &(*at)->next;
    *at = out->next;
}

bool output_close(struct outputs *o, struct output *out)
{
    bool ok = flush_buffer(out);
    int e = errno;

    unlink_output(o, out);
    o->n--;
    if (out->kind == OUTPUT_PIPE)
        command_unfed(o->commands, out->pid);
    if (close(out->fd) < 0 && ok && out->kind != OUTPUT_PIPE) {
        ok = false;
        e = errno;
    }
    free(out->buffer);
    free(out);
    errno = e;
    return ok;
}

static void close_last(struct outputs *o)
{
    struct output *last = o->list;

    while (last && last->next)
        last = last->next;
    if (last && !output_close(o, last))
        log_error("a file cannot be written: %s", strerror(errno));
}

void outputs_free(struct outputs *o)
{
    while (o->list)
        close_last(o);
}

void outputs_flush(struct outputs *o)
{
    for (struct output *out = o->list; out; out = out->next)
        if (!flush_buffer(out))
            log_error("\"%s\" cannot be written: %s", out->key, strerror(errno));
}

/* A file that was removed is reopened, a program that ended is restarted. */
static bool is_stale(struct outputs *o, const struct output *out)
{
    if (out->kind == OUTPUT_PIPE)
        return !command_runs(o->commands, out->pid);
    struct stat st;
    return fstat(out->fd, &st) < 0 || st.st_nlink == 0;
}

void outputs_make_room(struct outputs *o)
{
    struct output *last = NULL;

    commands_reap(o->commands);
    if (o->commands->n < o->commands->max)
        return;
    for (struct output *out = o->list; out; out = out->next)
        if (out->kind == OUTPUT_PIPE)
            last = out;
    if (last)
        output_close(o, last);
}

static bool start_pipe(struct outputs *o, struct output *out, char *const *argv, char *err,
                       size_t err_bytes)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0) {
        snprintf(err, err_bytes, "%s", strerror(errno));
        return false;
    }
    outputs_make_room(o);
    out->pid = command_start(o->commands, argv, ends[0], err, err_bytes);
    close(ends[0]);
    out->fd = ends[1];
    if (out->pid < 0) {
        close(ends[1]);
        return false;
    }
    fcntl(out->fd, F_SETFL, O_NONBLOCK);
    fcntl(out->fd, F_SETPIPE_SZ, PIPE_BYTES); /* if refused, it works with less */
    return true;
}

struct output *output_get(struct outputs *o, enum output_kind kind, const char *key,
                          size_t key_bytes, char *const *argv, char *err, size_t err_bytes)
{
    struct output *out = o->list;

    commands_reap(o->commands);
    while (out && (out->kind != kind || out->key_bytes != key_bytes ||
                   memcmp(out->key, key, key_bytes) != 0))
        out = out->next;
    if (out && is_stale(o, out)) {
        if (!output_close(o, out))
            log_error("\"%s\" was removed with bytes not yet written: %s", key, strerror(errno));
        out = NULL;
    }
    if (out) {
        unlink_output(o, out);
        out->next = o->list;
        o->list = out;
        out->is_new = false;
        return out;
    }
    while (o->n >= o->max)
        close_last(o);
    out = xcalloc(1, sizeof *out + key_bytes + 1);
    *out = (struct output){.kind = kind, .fd = -1, .is_new = true, .key_bytes = key_bytes};
    memcpy(out->key, key, key_bytes);
    bool opened;
    if (kind == OUTPUT_PIPE)
        opened = start_pipe(o, out, argv, err, err_bytes);
    else
        opened = (out->fd = datadir_append(o->dir, key, err, err_bytes)) >= 0;
    if (kind == OUTPUT_BUFFERED && opened)
        out->buffer = xcalloc(1, BUFFER_BYTES);
    if (!opened) {
        free(out);
        return NULL;
    }
    out->next = o->list;
    o->list = out;
    o->n++;
    return out;
}

bool output_is_new(const struct output *out)
{
    return out->is_new;
}
