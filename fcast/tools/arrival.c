/* SPDX-License-Identifier: Apache-2.0 */
#include "arrival.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "content.h"
#include "location.h"
#include "log_limit.h"
#include "loop/loop.h"

#define MINUTE_NS UINT64_C(60000000000)

static void __attribute__((format(printf, 2, 3)))
tell(const struct arrival *a, const char *format, ...)
{
    char text[FCAST_NAME_MAX + 512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    a->news.trouble(a->news.ctx, text);
}

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    struct arrival *a = ctx;

    /* What is known about the last session's files does not apply to the next. */
    if (a->has_session && (source != a->source || tsi != a->tsi))
        places_forget_done(&a->places);
    a->has_session = true;
    a->source = source;
    a->tsi = tsi;
    enum fcast_begin answer = place_open(&a->places, source, tsi, toi, fti, out);

    a->fti = *fti;
    const char *why = a->places.why ? a->places.why : strerror(errno);
    uint64_t more;
    if (answer == FCAST_REFUSE && !a->places.error &&
        log_limit_take(a->log, "sender", why, 1, a->now_ns, &more))
        tell(a, "toi=%llu bytes=%llu: no place: %s (once a minute)", (unsigned long long)toi,
             (unsigned long long)fti->length, why);
    if (answer == FCAST_WANT && a->news.began)
        a->news.began(a->news.ctx, toi, fti->length);
    return answer;
}

enum stored { STORED, WRONG_DIGEST, NOT_TAKEN, NO_ROOM };

static const enum stored results[] = {[CONTENT_GOOD] = STORED,
                                      [CONTENT_WRONG] = WRONG_DIGEST,
                                      [CONTENT_REFUSED] = NOT_TAKEN,
                                      [CONTENT_FAILED] = NO_ROOM};

/* Moves the object's own file to its name, if possible. *moved: whether it was. */
static enum stored move(struct arrival *a, struct content_job *job, const char *name, bool *moved)
{
    struct datadir_new there;

    *moved = false;
    if (content_is_packed(job->meta) || !place_may_move(job->ctx, job->at, job->bytes) ||
        datadir_aim(&a->dir, name, &there, job->why, sizeof job->why) < 0)
        return STORED;
    job->written = job->bytes;
    enum stored result = job->meta->has_digest ? results[content_copy(job)] : STORED;
    int error = errno;
    if (result == STORED)
        *moved = place_move(job->ctx, job->at, job->bytes, there.dir_fd, there.name);
    close(there.dir_fd);
    errno = error;
    return result;
}

/* Makes a file of the object's data. NO_ROOM: see errno; anything else but STORED: see the job's
 * `why`. */
static enum stored store(struct arrival *a, struct content_job *job, const char *name)
{
    struct datadir_new fresh;
    bool moved;
    enum stored result = move(a, job, name, &moved);

    if (moved || result != STORED)
        return result;
    const unsigned long refused = a->dir.refused;
    if (places_note_copy(&a->places, name) < 0)
        return NO_ROOM;
    errno = 0;
    if (datadir_new(&a->dir, name, &fresh, job->why, sizeof job->why) < 0) {
        int error = errno;
        places_forget_copy(&a->places);
        errno = error;
        /* Failures that a sender can cause by a file name must not end the program. */
        bool is_of_name = error == ENAMETOOLONG || error == EACCES || error == EPERM;
        return a->dir.refused > refused || !error || is_of_name ? NOT_TAKEN : NO_ROOM;
    }
    job->fd = fresh.fd;
    result = results[content_copy(job)];
    int error = errno;
    char why[256];
    if (datadir_new_finish(&fresh, result == STORED, why, sizeof why) < 0 && result == STORED) {
        error = errno;
        result = error == EISDIR ? NOT_TAKEN : NO_ROOM;
        snprintf(job->why, sizeof job->why, "%.*s", (int)sizeof job->why - 1, why);
    }
    places_forget_copy(&a->places);
    errno = error;
    return result;
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    struct arrival *a = ctx;
    char name[FCAST_NAME_MAX];
    struct content_job job = {.read = place_read,
                              .ctx = place,
                              .at = at,
                              .bytes = bytes,
                              .meta = meta,
                              .most_bytes = a->max_unpacked_bytes,
                              .fd = -1,
                              .why = "Content-Location is not a path"};
    enum stored result =
        fcast_location_get(meta->location, name, sizeof name) ? store(a, &job, name) : NOT_TAKEN;

    if (result == NO_ROOM && !a->places.error)
        a->places.error = errno ? errno : EIO;
    place_close(&a->places, place, result == STORED, result == NO_ROOM);
    if (result == WRONG_DIGEST || result == NOT_TAKEN)
        tell(a, "toi=%llu bytes=%llu: %s", (unsigned long long)toi, (unsigned long long)bytes,
             job.why);
    if (result != STORED)
        return result == WRONG_DIGEST ? FCAST_WRONG : FCAST_UNSTORED;
    a->bytes += job.written;
    struct arrival_file file = {.toi = toi,
                                .bytes = job.written,
                                .name = name,
                                .has_digest = meta->has_digest,
                                .seconds = (double)(a->now_ns - a->begun_ns) / 1e9};
    fcast_receiver_get_stats(a->core, &file.stats);
    a->news.file(a->news.ctx, &file);
    return FCAST_STORED;
}

static void drop(void *ctx, uint64_t toi, void *place, bool keep)
{
    struct arrival *a = ctx;

    (void)toi;
    place_close(&a->places, place, false, keep);
    if (keep)
        places_bound(&a->places, a->max_bytes);
}

/* Removes what earlier processes left behind. */
static void clean(struct arrival *a)
{
    char name[FCAST_NAME_MAX + 8], why[256];
    pid_t pid;

    if (places_left_copy(&a->places, name, sizeof name, &pid) &&
        datadir_remove_begun(&a->dir, name, pid, why, sizeof why) < 0)
        tell(a, "'%s/%s', half made: %s", a->dir_path, name, why);
    places_forget_copy(&a->places);
    places_bound(&a->places, a->max_bytes);
}

enum arrival_opened arrival_open(struct arrival *a, const char *dir_path, uint64_t max_bytes,
                                 struct tp_error *err)
{
    const int fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    a->dir_path = dir_path;
    a->max_bytes = max_bytes;
    if (fd < 0 || datadir_open(&a->dir, dir_path) < 0) {
        tp_fail(err, "directory '%s': %s", dir_path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return ARRIVAL_NO_DIRECTORY;
    }
    a->dir.own = ".fcast";
    const int opened = places_open(&a->places, fd);
    if (opened < 0 && errno == EWOULDBLOCK)
        tp_fail(err, "'%s': another receiver uses it; valid: a directory for each", dir_path);
    else if (opened < 0)
        tp_fail(err, "'%s/.fcast': %s", dir_path, strerror(errno));
    close(fd);
    if (opened < 0) {
        datadir_close(&a->dir);
        return ARRIVAL_FAILED;
    }
    clean(a);
    a->log = log_limit_new(16, MINUTE_NS);
    if (a->log)
        return ARRIVAL_OPEN;
    tp_fail(err, "out of memory");
    arrival_close(a, false);
    return ARRIVAL_FAILED;
}

void arrival_serve(struct arrival *a, struct fcast_receiver_config *cfg)
{
    cfg->ctx = a;
    cfg->begin = begin;
    cfg->done = done;
    cfg->drop = drop;
}

void arrival_time(struct arrival *a)
{
    struct fcast_receiver_stats st;
    uint64_t more;

    a->now_ns = tp_now_ns();
    fcast_receiver_set_time(a->core, tp_ntp_s());
    fcast_receiver_get_stats(a->core, &st);
    if (st.stale == a->stale)
        return;
    a->stale = st.stale;
    if (log_limit_take(a->log, "sender", "stale", 1, a->now_ns, &more))
        tell(a,
             "refused datagrams stamped %lld s %s: replayed, or a clock is wrong; "
             "valid: --max-age (once a minute)",
             llabs((long long)st.stale_s), st.stale_s < 0 ? "ahead" : "ago");
}

void arrival_close(struct arrival *a, bool is_complete)
{
    if (is_complete)
        places_forget_done(&a->places);
    places_close(&a->places);
    datadir_close(&a->dir);
    log_limit_free(a->log);
}
