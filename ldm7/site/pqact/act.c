/* SPDX-License-Identifier: Apache-2.0 */
#include "act.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/words.h"

#define ARG_MAX_BYTES 4096u
#define WHY_BYTES 512u
#define CHUNK_BYTES 65536u

void actor_use(struct actor *a, struct actconf *conf)
{
    a->conf = conf;
    a->spans = xreallocarray(a->spans, conf->spans, sizeof *a->spans);
}

void actor_free(struct actor *a)
{
    free(a->spans);
    a->spans = NULL;
}

static uint8_t *put(uint8_t *at, const void *from, size_t bytes)
{
    memcpy(at, from, bytes);
    return at + bytes;
}

size_t act_metadata(const struct pq_info *info, uint32_t data_bytes, uint8_t out[ACT_METADATA_MAX])
{
    uint32_t ident = (uint32_t)strlen(info->ident), origin = (uint32_t)strlen(info->origin);
    uint32_t total = 4 + 16 + 4 + 8 + 4 + 4 + 4 + 4 + ident + 4 + origin;
    uint64_t seconds = (uint64_t)info->creation.tv_sec;
    int32_t microseconds = (int32_t)info->creation.tv_usec;
    uint8_t *at = put(out, &total, 4);

    at = put(at, info->signature.bytes, 16);
    at = put(at, &data_bytes, 4);
    at = put(at, &seconds, 8);
    at = put(at, &microseconds, 4);
    at = put(at, &info->feedtype, 4);
    at = put(at, &info->seqno, 4);
    at = put(at, &ident, 4);
    at = put(at, info->ident, ident);
    at = put(at, &origin, 4);
    put(at, info->origin, origin);
    return total;
}

size_t act_strip(const uint8_t *data, size_t bytes, uint8_t *out)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++)
        if ((data[i] >= 0x20 && data[i] != 0x7f) || data[i] == '\n')
            out[n++] = data[i];
    return n;
}

/* ------------------------------------------------------------------ the bytes of a product */

/* Where the bytes go: an output, or (out NULL) a new file. */
struct target {
    struct outputs *outputs;
    struct output *out;
    struct datadir_new *fresh;
};

static bool write_fresh(int fd, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes < (1u << 30) ? bytes : 1u << 30);

        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return true;
}

static bool write_to(const struct target *t, const void *data, size_t bytes)
{
    return t->out ? output_write(t->outputs, t->out, data, bytes)
                  : write_fresh(t->fresh->fd, data, bytes);
}

static size_t stripped_bytes(const uint8_t *data, size_t bytes)
{
    size_t n = 0;

    uint8_t chunk[CHUNK_BYTES];
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES)
        n += act_strip(data + at, bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES, chunk);
    return n;
}

static bool write_product(const struct target *t, unsigned options, const struct pq_info *info,
                          const uint8_t *data)
{
    bool strips = options & ACT_STRIP;

    uint8_t chunk[CHUNK_BYTES];
    if (options & ACT_METADATA) {
        size_t bytes = strips ? stripped_bytes(data, info->size) : info->size;

        if (!write_to(t, chunk, act_metadata(info, (uint32_t)bytes, chunk)))
            return false;
    }
    if (!strips)
        return write_to(t, data, info->size);
    for (size_t at = 0; at < info->size; at += CHUNK_BYTES) {
        size_t n = info->size - at < CHUNK_BYTES ? info->size - at : CHUNK_BYTES;

        if (!write_to(t, chunk, act_strip(data + at, n, chunk)))
            return false;
    }
    return true;
}
_Static_assert(CHUNK_BYTES >= ACT_METADATA_MAX, "metadata goes into a chunk");

/* ------------------------------------------------------------------ actions */

struct job {
    struct actor *a;
    const struct act_entry *e;
    const struct pq_info *info;
    const uint8_t *data;
    char why[WHY_BYTES];
};

static bool overwrite(struct job *j, const char *path)
{
    struct datadir_new fresh;
    struct target t = {.fresh = &fresh};

    if (datadir_new(j->a->dir, path, &fresh, j->why, sizeof j->why) < 0)
        return false;
    bool ok = write_product(&t, j->e->options, j->info, j->data) &&
              (!(j->e->options & ACT_FLUSH) || fdatasync(fresh.fd) == 0);
    if (!ok)
        snprintf(j->why, sizeof j->why, "%s", strerror(errno));
    return datadir_new_finish(&fresh, ok, j->why, sizeof j->why) == 0 && ok;
}

static bool write_and_close(struct job *j, struct output *out)
{
    struct outputs *o = j->a->outputs;
    struct target t = {.outputs = o, .out = out};
    bool ok = write_product(&t, j->e->options, j->info, j->data) &&
              (!(j->e->options & ACT_FLUSH) || output_sync(o, out));
    int e = errno;

    if (ok && !(j->e->options & ACT_CLOSE))
        return true;
    if (!output_close(o, out) && ok) {
        ok = false;
        e = errno;
    }
    errno = e;
    return ok;
}

static bool to_file(struct job *j, const char *path)
{
    enum output_kind kind = j->e->kind == ACT_STDIOFILE ? OUTPUT_BUFFERED : OUTPUT_FILE;

    if (j->e->options & ACT_OVERWRITE)
        return overwrite(j, path);
    struct output *out =
        output_get(j->a->outputs, kind, path, strlen(path) + 1, NULL, j->why, sizeof j->why);
    if (!out)
        return false;
    if (write_and_close(j, out))
        return true;
    snprintf(j->why, sizeof j->why, "%s", strerror(errno));
    return false;
}

/* A program that ended since the previous product is restarted. */
static bool to_pipe(struct job *j, char *const *argv, const char *key, size_t key_bytes)
{
    for (;;) {
        struct output *out =
            output_get(j->a->outputs, OUTPUT_PIPE, key, key_bytes, argv, j->why, sizeof j->why);

        if (!out)
            return false;
        bool is_new = output_is_new(out);
        if (write_and_close(j, out))
            return true;
        if (errno != EPIPE || is_new) {
            snprintf(j->why, sizeof j->why, "%s",
                     errno == EPIPE ? "the program ended before it had read everything"
                                    : strerror(errno));
            return false;
        }
    }
}

static bool execute(struct job *j, char *const *argv)
{
    outputs_make_room(j->a->outputs);
    pid_t pid = command_start(j->a->commands, argv, -1, j->why, sizeof j->why);
    if (pid < 0)
        return false;
    if (!(j->e->options & ACT_WAIT) || command_wait(j->a->commands, pid))
        return true;
    snprintf(j->why, sizeof j->why, "it failed");
    return false;
}

/* Expands the words one after the other into `text`; *bytes: how many bytes. Returns false with
 * `why`. */
static bool expand(struct job *j, char *text, size_t room, char **argv, size_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < j->e->nargs; i++) {
        const struct template *t = j->e->args[i];
        size_t left = room - *bytes < ARG_MAX_BYTES ? room - *bytes : ARG_MAX_BYTES;
        if (!left) {
            snprintf(j->why, sizeof j->why, "arguments longer than %zu bytes", room);
            return false;
        }
        long n = template_expand(t, j->info, j->a->spans, j->a->conf->spans, text + *bytes, left,
                                 j->why, sizeof j->why);

        if (n < 0)
            return false;
        argv[i] = text + *bytes;
        /* Otherwise a name could look like an option of the program. */
        if (j->e->kind != ACT_FILE && j->e->kind != ACT_STDIOFILE && argv[i][0] == '-' &&
            template_begins_with_group(t)) {
            snprintf(j->why, sizeof j->why,
                     "argument \"%.60s\" from the identifier begins with \"-\"", argv[i]);
            return false;
        }
        *bytes += (size_t)n + 1;
    }
    argv[j->e->nargs] = NULL;
    return true;
}

static void carry_out(struct actor *a, const struct act_entry *e, const struct pq_info *info,
                      const uint8_t *data)
{
    static char text[WORDS_MAX * 512];
    struct job j = {.a = a, .e = e, .info = info, .data = data};
    unsigned long refused = a->dir->refused;

    char *argv[WORDS_MAX + 1], line[PRODUCT_LINE_MAX];
    size_t bytes;
    if (!expand(&j, text, sizeof text, argv, &bytes)) {
        a->stats.refused++;
        log_error("%s of line %u: %s; product: %s", act_kind_name(e->kind), e->line, j.why,
                  product_line_format(info, line, sizeof line));
        return;
    }
    bool ok;
    switch (e->kind) {
    case ACT_FILE:
    case ACT_STDIOFILE: ok = to_file(&j, argv[0]); break;
    case ACT_PIPE: ok = to_pipe(&j, argv, text, bytes); break;
    default: ok = execute(&j, argv); break;
    }
    if (ok) {
        a->stats.actions++;
        log_at(e->options & ACT_LOG ? LOG_LVL_NOTE : LOG_LVL_INFO, "%s: %s: %s",
               act_kind_name(e->kind), argv[0], product_line_format(info, line, sizeof line));
        return;
    }
    if (a->dir->refused != refused)
        a->stats.refused++;
    else
        a->stats.failed++;
    log_error("%s of line %u: \"%s\": %s; product: %s", act_kind_name(e->kind), e->line, argv[0],
              j.why, product_line_format(info, line, sizeof line));
}

void actor_product(struct actor *a, const struct pq_info *info, const uint8_t *data)
{
    bool matched = false, acted = false;

    a->stats.products++;
    for (int others = 0; others < 2; others++) {
        if (others && matched)
            break;
        for (size_t i = 0; i < a->conf->n; i++) {
            const struct act_entry *e = &a->conf->entries[i];

            if ((e->feed & info->feedtype) == 0 || (!e->ere) != (others == 1))
                continue;
            memset(a->spans, 0, a->conf->spans * sizeof *a->spans);
            if (e->ere &&
                ere_match_groups(e->ere, info->ident, a->spans, a->conf->spans) != ERE_YES)
                continue;
            matched = true;
            if (e->nargs == 0) /* NOOP */
                continue;
            acted = true;
            carry_out(a, e, info, data);
        }
    }
    a->stats.matched += acted;
}
