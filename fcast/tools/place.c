/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_at.h"
#include "shelf.h"
#include "tool/command.h"

#define COPY "copying"
enum { NOTES = 512, NOTE_BYTES = 8, NAME_BYTES = 32 };

struct place {
    struct places *owner;
    char name[NAME_BYTES]; /* of session, object and OTI */
    int notes_fd;
    struct disk_file data, repair;
    struct fcast_shelf *shelf; /* NULL: in place */
    bool is_sorting, is_settled;
    uint8_t notes[NOTES * NOTE_BYTES]; /* not written yet */
    unsigned count;
    uint64_t notes_end; /* bytes of the file */
    bool is_deaf;       /* notes could not be written: later ones would speak of wrong slots */
    uint8_t read_notes[NOTES * NOTE_BYTES]; /* of an earlier process */
    uint64_t read_first, read_count;
};

int places_open(struct places *p, int dir_fd)
{
    if (mkdirat(dir_fd, ".fcast", 0700) < 0 && errno != EEXIST)
        return -1;
    *p = (struct places){
        .dir_fd = openat(dir_fd, ".fcast", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    return p->dir_fd < 0 || flock(p->dir_fd, LOCK_EX | LOCK_NB) < 0 ? -1 : 0;
}

/* FNV-1a */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        hash ^= value >> 8 * i & 0xff;
        hash *= UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Parts of another scheme are others: their notes mean something else. */
static void make_name(const struct places *owner, char out[NAME_BYTES], uint64_t source,
                      uint64_t tsi, uint64_t toi, const struct fcast_fti *f)
{
    const uint64_t parts[] = {source,          tsi,          toi,      f->fec, f->length,
                              f->symbol_bytes, f->block_max, f->n_max, f->n1,  f->seed};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hash = mix(hash, parts[i]);
    if (owner->keeping.storage != STORAGE_IN_PLACE)
        hash = mix(mix(hash, (uint64_t)owner->keeping.storage), owner->keeping.crowd);
    snprintf(out, NAME_BYTES, "%016llx", (unsigned long long)hash);
}

static int open_part(const struct places *p, const char *name, const char *suffix)
{
    char path[NAME_BYTES + 16];

    snprintf(path, sizeof path, "%s.%s", name, suffix);
    return openat(p->dir_fd, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static bool has_part(const struct places *p, const char *name, const char *suffix)
{
    char path[NAME_BYTES + 16];

    snprintf(path, sizeof path, "%s.%s", name, suffix);
    return faccessat(p->dir_fd, path, F_OK, 0) == 0;
}

/* What an object has while it is incomplete. */
static void remove_parts(const struct places *p, const char *name)
{
    static const char *const suffixes[] = {"notes", "repair", "data"};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char path[NAME_BYTES + 16];
        snprintf(path, sizeof path, "%s.%s", name, suffixes[i]);
        unlinkat(p->dir_fd, path, 0);
    }
}

int place_read(void *place, uint64_t at, void *bytes, size_t len)
{
    struct place *p = place;

    return disk_read(p->shelf && fcast_shelf_is_moved(p->shelf) ? &p->repair : &p->data, at, bytes,
                     len, NULL);
}

/* Those of what goes on now; NULL: the scheme has done its work. */
static struct disk_counts *counts_of(struct place *p)
{
    if (p->is_settled)
        return NULL;
    return p->is_sorting ? &p->owner->sorting : &p->owner->receiving;
}

static int checked(struct place *p, int result)
{
    if (result < 0 && !p->owner->error)
        p->owner->error = errno;
    return result;
}

static int read_data(void *ctx, uint64_t at, void *bytes, size_t len)
{
    struct place *p = ctx;
    struct disk_file *f = p->shelf && fcast_shelf_is_moved(p->shelf) ? &p->repair : &p->data;

    return disk_read(f, at, bytes, len, counts_of(p));
}

static int write_data(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct place *p = ctx;

    return checked(p, disk_write(&p->data, at, bytes, len, counts_of(p)));
}

static int read_repair(void *ctx, uint64_t at, void *bytes, size_t len)
{
    struct place *p = ctx;

    return disk_read(&p->repair, at, bytes, len, counts_of(p));
}

static int write_repair(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct place *p = ctx;

    return checked(p, disk_write(&p->repair, at, bytes, len, counts_of(p)));
}

/* Notes are appended after the symbols they speak of, so none is ahead of its bytes. What a failed
 * write left of one is written over. */
static void flush(struct place *p)
{
    size_t len = (size_t)p->count * NOTE_BYTES;

    if (!p->is_deaf && checked(p, file_write_at(p->notes_fd, p->notes_end, p->notes, len)) == 0)
        p->notes_end += len;
    else
        p->is_deaf = true;
    p->count = 0;
}

static void note(void *ctx, struct fcast_symbol s)
{
    struct place *p = ctx;
    const uint32_t words[2] = {s.block, s.id};

    memcpy(p->notes + (size_t)p->count * NOTE_BYTES, words, NOTE_BYTES);
    if (++p->count == NOTES)
        flush(p);
}

static bool noted(void *ctx, uint64_t i, struct fcast_symbol *out)
{
    struct place *p = ctx;

    if (i < p->read_first || i >= p->read_first + p->read_count) {
        ssize_t n =
            pread(p->notes_fd, p->read_notes, sizeof p->read_notes, (off_t)(i * NOTE_BYTES));
        p->read_first = i;
        p->read_count = n > 0 ? (uint64_t)n / NOTE_BYTES : 0;
        if (!p->read_count)
            return false;
    }
    uint32_t words[2];
    memcpy(words, p->read_notes + (i - p->read_first) * NOTE_BYTES, NOTE_BYTES);
    *out = (struct fcast_symbol){words[0], words[1]};
    return true;
}

static int sync_notes(void *ctx)
{
    struct place *p = ctx;

    flush(p);
    return p->is_deaf ? -1 : 0;
}

static int keep(void *ctx, struct fcast_symbol s, const uint8_t *bytes)
{
    return fcast_shelf_keep(((const struct place *)ctx)->shelf, s, bytes);
}

static bool noted_by_shelf(void *ctx, uint64_t i, struct fcast_symbol *out)
{
    return fcast_shelf_noted(((const struct place *)ctx)->shelf, i, out);
}

static int settle(void *ctx)
{
    struct place *p = ctx;

    if (fcast_shelf_flush(p->shelf) < 0)
        return -1;
    p->is_sorting = true;
    p->is_settled = fcast_shelf_settle(p->shelf) == 0;
    return p->is_settled ? 0 : -1;
}

static void close_files(struct place *p)
{
    disk_close(&p->data);
    disk_close(&p->repair);
    if (p->notes_fd >= 0)
        close(p->notes_fd);
    fcast_shelf_free(p->shelf);
}

static bool is_full(int why)
{
    return why == ENOSPC || why == EDQUOT || why == EIO;
}

static struct fcast_shelf_config shelf_of(const struct places *owner, const struct fcast_fti *fti)
{
    return (struct fcast_shelf_config){
        .scheme = (enum fcast_scheme)(owner->keeping.storage - 1),
        .b = owner->keeping.crowd,
        .max_bytes = owner->keeping.memory_bytes - owner->memory_used,
        .rs_kind = owner->keeping.rs_kind,
        .fti = *fti,
    };
}

/* Why this object cannot be kept as the options say; NULL: it can. Before there is a file of it: a
 * sender can announce objects without end. */
static const char *why_not(const struct places *owner, const struct fcast_fti *fti)
{
    const bool has_shelf = owner->keeping.storage != STORAGE_IN_PLACE;

    if (has_shelf && fti->fec != FCAST_RS)
        return "its code is not Reed-Solomon; valid: --storage in-place";
    if (owner->keeping.is_direct && fti->symbol_bytes % DISK_UNIT)
        return "its symbols are no multiples of 512 bytes; valid: --io cached";
    const struct fcast_shelf_config cfg = shelf_of(owner, fti);
    if (has_shelf && fcast_shelf_need(&cfg) > cfg.max_bytes)
        return "this scheme needs more memory for it; valid: a larger --memory";
    return NULL;
}

/* A shelf on the place's files. -1 with errno. */
static int put_up_shelf(struct place *p, const struct fcast_fti *fti, struct fcast_place *out)
{
    struct places *owner = p->owner;
    struct fcast_shelf_config cfg = shelf_of(owner, fti);

    cfg.disk = *out;
    cfg.disk.sync = sync_notes;
    p->shelf = fcast_shelf_new(&cfg);
    if (!p->shelf)
        return -1;
    owner->memory_used += fcast_shelf_memory(p->shelf);
    if (owner->memory_peak < owner->memory_used)
        owner->memory_peak = owner->memory_used;
    out->keep = keep;
    out->settle = settle;
    out->noted = noted_by_shelf;
    return 0;
}

/* Opens the three files. -1 with errno. */
static int open_files(struct place *p, const struct fcast_fti *fti)
{
    const struct places *owner = p->owner;
    char data[NAME_BYTES + 16], repair[NAME_BYTES + 16];
    struct stat st;

    snprintf(data, sizeof data, "%s.data", p->name);
    snprintf(repair, sizeof repair, "%s.repair", p->name);
    p->notes_fd = open_part(owner, p->name, "notes");
    if (p->notes_fd < 0 || disk_open(&p->data, owner->dir_fd, data, owner->keeping.is_direct) < 0 ||
        disk_open(&p->repair, owner->dir_fd, repair, owner->keeping.is_direct) < 0 ||
        fstat(p->notes_fd, &st) < 0)
        return -1;
    /* A note that is not whole was being written when the process was killed. */
    p->notes_end = (uint64_t)st.st_size / NOTE_BYTES * NOTE_BYTES;
    if (ftruncate(p->notes_fd, (off_t)p->notes_end) < 0)
        return -1;
    /* Schemes write whole blocks, and more of them than the object has. */
    return owner->keeping.storage == STORAGE_IN_PLACE ? ftruncate(p->data.fd, (off_t)fti->length)
                                                      : 0;
}

enum fcast_begin place_open(struct places *owner, uint64_t source, uint64_t tsi, uint64_t toi,
                            const struct fcast_fti *fti, struct fcast_place *out)
{
    char name[NAME_BYTES];

    make_name(owner, name, source, tsi, toi, fti);
    if (has_part(owner, name, "done"))
        return FCAST_HAVE;
    const bool is_new = !has_part(owner, name, "notes");
    owner->why = fti->length ? why_not(owner, fti) : NULL;
    struct place *p = owner->why ? NULL : calloc(1, sizeof *p);
    if (!p)
        return FCAST_REFUSE;
    p->owner = owner;
    p->data = p->repair = (struct disk_file){-1, -1, 0};
    memcpy(p->name, name, sizeof name);
    *out = (struct fcast_place){.ctx = p,
                                .data = {p, read_data, write_data},
                                .repair = {p, read_repair, write_repair},
                                .note = note,
                                .noted = noted};
    bool has_shelf = owner->keeping.storage != STORAGE_IN_PLACE && fti->length;
    if (open_files(p, fti) < 0 || (has_shelf && put_up_shelf(p, fti, out) < 0)) {
        int why = errno;
        if (is_full(why))
            owner->error = why;
        if (owner->keeping.is_direct && why == EINVAL)
            owner->why = "its file system has no direct I/O; valid: --io cached";
        close_files(p);
        if (is_new)
            remove_parts(owner, name);
        free(p);
        errno = why;
        return FCAST_REFUSE;
    }
    return FCAST_WANT;
}

/* What a scheme has in memory. */
static void take_down_shelf(struct place *p, bool is_kept)
{
    struct places *owner = p->owner;
    uint64_t peak = fcast_shelf_peak(p->shelf);

    if (is_kept)
        fcast_shelf_flush(p->shelf);
    owner->memory_used -= fcast_shelf_memory(p->shelf);
    owner->peak_blocks = peak > owner->peak_blocks ? peak : owner->peak_blocks;
}

void place_close(struct places *owner, void *place, bool done, bool keep_parts)
{
    struct place *p = place;

    if (p->shelf)
        take_down_shelf(p, keep_parts);
    if (keep_parts)
        flush(p);
    close_files(p);
    if (!keep_parts)
        remove_parts(owner, p->name);
    if (done) {
        int fd = open_part(owner, p->name, "done");
        if (fd >= 0)
            close(fd);
    }
    free(p);
}

void places_forget_done(struct places *p)
{
    int fd = openat(p->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    for (const struct dirent *e; dir && (e = readdir(dir));) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot && strcmp(dot, ".done") == 0)
            unlinkat(p->dir_fd, e->d_name, 0);
    }
    if (dir)
        closedir(dir);
}

/* ------------------------------------------------------------------ parts that are left */

struct part { /* of an object; those of one have the same name */
    char name[NAME_BYTES];
    uint64_t bytes;
    time_t changed;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct part *)a)->name, ((const struct part *)b)->name);
}

static int by_age(const void *a, const void *b)
{
    const struct part *one = a, *two = b;

    return (one->changed > two->changed) - (one->changed < two->changed);
}

static bool take_part(const struct places *p, const char *file, struct part *out)
{
    size_t n = strspn(file, "0123456789abcdef");
    struct stat st;

    if (n == 0 || n >= NAME_BYTES || file[n] != '.' || strcmp(file + n, ".done") == 0 ||
        fstatat(p->dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *out = (struct part){.bytes = (uint64_t)st.st_blocks * 512, .changed = st.st_mtime};
    memcpy(out->name, file, n);
    return true;
}

/* All objects' parts, one entry an object; the caller frees. */
static struct part *list_parts(const struct places *p, size_t *count)
{
    int fd = openat(p->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct part *list = NULL;
    size_t n = 0, room = 0;

    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (n == room)
            list = xreallocarray(list, room = room ? 2 * room : 64, sizeof *list);
        n += take_part(p, e->d_name, &list[n]);
    }
    if (dir)
        closedir(dir);
    *count = 0;
    if (n)
        qsort(list, n, sizeof *list, by_name);
    for (size_t i = 0; i < n; i++) {
        struct part *last = *count ? &list[*count - 1] : NULL;
        if (!last || strcmp(last->name, list[i].name) != 0) {
            list[(*count)++] = list[i];
            continue;
        }
        last->bytes += list[i].bytes;
        last->changed = last->changed > list[i].changed ? last->changed : list[i].changed;
    }
    return list;
}

void places_bound(struct places *p, uint64_t most_bytes)
{
    uint64_t all = 0;
    size_t count;
    struct part *list = list_parts(p, &count);

    if (count)
        qsort(list, count, sizeof *list, by_age);
    for (size_t i = 0; i < count; i++)
        all += list[i].bytes;
    for (size_t i = 0; i < count && all > most_bytes; i++) {
        remove_parts(p, list[i].name);
        all -= list[i].bytes;
    }
    free(list);
}

/* ------------------------------------------------------------------ copies */

int places_note_copy(struct places *p, const char *path)
{
    char text[FCAST_NAME_MAX + 32];
    int len = snprintf(text, sizeof text, "%d %s", (int)getpid(), path);
    int fd = openat(p->dir_fd, COPY, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int result = fd < 0 ? -1 : file_write_at(fd, 0, text, (size_t)len), why = errno;

    if (fd >= 0)
        close(fd);
    errno = why;
    return result;
}

void places_forget_copy(struct places *p)
{
    unlinkat(p->dir_fd, COPY, 0);
}

bool places_left_copy(struct places *p, char *path, size_t room, pid_t *pid)
{
    char text[FCAST_NAME_MAX + 32];
    int fd = openat(p->dir_fd, COPY, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *end;
    long number = strtol(text, &end, 10);
    if (number <= 0 || number > INT_MAX || *end != ' ')
        return false;
    *pid = (pid_t)number;
    return (size_t)snprintf(path, room, "%s", end + 1) < room;
}
