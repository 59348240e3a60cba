/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_at.h"
#include "gather.h"
#include "place_impl.h"
#include "shelf.h"

enum {
    NOTES = 512,         /* least number of symbols between writes of notes */
    NOTES_MAX = 8192,    /* and the most */
    NOTES_OF_BLOCK = 32, /* per block, */
    PART_OF_BLOCK = 8,   /* but at most this fraction of it */
    NOTE_BYTES = 8,
    WAITING_BYTES = 8 << 20, /* symbols waiting to be written */
    TAIL_MAX = 1 << 16,
};
/* The first note says where the object's data begins (struct place); no block has this number. */
#define SHIFT_NOTE UINT32_MAX

struct place {
    struct places *owner;
    char name[PLACE_NAME_BYTES]; /* made from session, object and OTI */
    int notes_fd;
    struct disk_file data, repair;
    struct fcast_shelf *shelf; /* NULL: in place */
    bool is_sorting, is_settled;
    /* The object's first `shift` bytes, FCAST's header, are stored at the end of its file, so that
     * cutting them off leaves a file of just the data. */
    uint64_t length, shift;
    bool has_shift; /* shift is known, or the files already contain bytes or notes */
    bool is_gathered;
    struct gather_file gathered_data, gathered_repair;
    uint8_t notes[(NOTES_MAX + 1) * NOTE_BYTES]; /* not written yet */
    unsigned count, notes_most;
    uint64_t notes_end; /* size of the file in bytes */
    bool is_deaf;       /* notes could not be written: later ones would give wrong slots */
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

/* Parts of another storage scheme get another name: their notes mean something else. */
static void make_name(const struct places *owner, char out[PLACE_NAME_BYTES], uint64_t source,
                      uint64_t tsi, uint64_t toi, const struct fcast_fti *f)
{
    const uint64_t parts[] = {source,          tsi,          toi,      f->fec, f->length,
                              f->symbol_bytes, f->block_max, f->n_max, f->n1,  f->seed};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hash = mix(hash, parts[i]);
    if (owner->keeping.storage != STORAGE_IN_PLACE)
        hash = mix(mix(hash, (uint64_t)owner->keeping.storage), owner->keeping.crowd);
    snprintf(out, PLACE_NAME_BYTES, "%016llx", (unsigned long long)hash);
}

static int open_part(const struct places *p, const char *name, const char *suffix)
{
    char path[PLACE_NAME_BYTES + 16];

    snprintf(path, sizeof path, "%s.%s", name, suffix);
    return openat(p->dir_fd, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static bool has_part(const struct places *p, const char *name, const char *suffix)
{
    char path[PLACE_NAME_BYTES + 16];

    snprintf(path, sizeof path, "%s.%s", name, suffix);
    return faccessat(p->dir_fd, path, F_OK, 0) == 0;
}

/* Returns the counters of the current phase; NULL: the scheme has finished. */
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

/* ------------------------------------------------------------------ bytes */

/* Returns where in the file the object's bytes from `at` on are; *len: how many of them are
 * contiguous. */
static uint64_t place_of(const struct place *p, uint64_t at, size_t *len)
{
    if (at >= p->shift)
        return at - p->shift;
    if (*len > p->shift - at)
        *len = (size_t)(p->shift - at);
    return p->length - p->shift + at;
}

static int put_data(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct place *p = ctx;
    const uint8_t *from = bytes;

    p->has_shift = true;
    for (size_t n; len; len -= n, at += n, from += n) {
        n = len;
        uint64_t there = place_of(p, at, &n);
        if (checked(p, disk_write(&p->data, there, from, n, counts_of(p))) < 0)
            return -1;
    }
    return 0;
}

static int put_repair(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct place *p = ctx;

    return checked(p, disk_write(&p->repair, at, bytes, len, counts_of(p)));
}

static int get_data(struct place *p, uint64_t at, void *bytes, size_t len,
                    struct disk_counts *counts)
{
    struct disk_file *f = p->shelf && fcast_shelf_is_moved(p->shelf) ? &p->repair : &p->data;
    uint8_t *to = bytes;

    if (p->gathered_data.runs && gather_flush(p->owner->gather, &p->gathered_data) < 0)
        return -1;
    for (size_t n; len; len -= n, at += n, to += n) {
        n = len;
        uint64_t there = place_of(p, at, &n);
        if (disk_read(f, there, to, n, counts) < 0)
            return -1;
    }
    return 0;
}

int place_read(void *place, uint64_t at, void *bytes, size_t len)
{
    return get_data(place, at, bytes, len, NULL);
}

static int read_data(void *ctx, uint64_t at, void *bytes, size_t len)
{
    return get_data(ctx, at, bytes, len, counts_of(ctx));
}

/* The first symbol says how long the header is, if it arrives before others are in the file. */
static void look_for_header(struct place *p, const uint8_t *bytes, size_t len)
{
    uint32_t shift;

    if (p->has_shift || !p->owner->keeping.has_header || len < FCAST_OBJECT_FIXED)
        return;
    shift = (uint32_t)fcast_object_header_len(bytes, p->length);
    memcpy(p->notes + sizeof shift, &shift, sizeof shift);
    p->shift = shift;
    p->has_shift = true;
}

static int write_data(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct place *p = ctx;

    if (!p->is_gathered)
        return put_data(p, at, bytes, len);
    if (at == 0)
        look_for_header(p, bytes, len);
    return gather_put(p->owner->gather, &p->gathered_data, at, bytes, len);
}

static int read_repair(void *ctx, uint64_t at, void *bytes, size_t len)
{
    struct place *p = ctx;

    if (p->gathered_repair.runs && gather_flush(p->owner->gather, &p->gathered_repair) < 0)
        return -1;
    return disk_read(&p->repair, at, bytes, len, counts_of(p));
}

static int write_repair(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct place *p = ctx;

    if (!p->is_gathered)
        return put_repair(p, at, bytes, len);
    return gather_put(p->owner->gather, &p->gathered_repair, at, bytes, len);
}

/* Writes waiting symbols to their files. */
static int write_waiting(struct place *p)
{
    if (!p->is_gathered)
        return 0;
    int result = gather_flush(p->owner->gather, &p->gathered_data);
    return gather_flush(p->owner->gather, &p->gathered_repair) < 0 ? -1 : result;
}

/* ------------------------------------------------------------------ notes */

/* Appends notes after writing their symbols, so no note precedes its bytes. Overwrites the remains
 * of a failed write. */
static void flush(struct place *p)
{
    size_t len = (size_t)p->count * NOTE_BYTES;

    p->has_shift = true; /* the notes record the shift */
    p->is_deaf = p->is_deaf || write_waiting(p) < 0;
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
    if (++p->count >= p->notes_most + !p->notes_end) /* counts the note that has the shift */
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
    if (p->is_gathered) {
        gather_drop(p->owner->gather, &p->gathered_data);
        gather_drop(p->owner->gather, &p->gathered_repair);
    }
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
        .fills = owner->keeping.is_direct,
        .rs_kind = owner->keeping.rs_kind,
        .fti = *fti,
    };
}

/* Returns why the options do not permit this object; NULL: they do. Called before making a file,
 * because a sender can announce any number of objects. */
static const char *why_not(const struct places *owner, const struct fcast_fti *fti)
{
    const bool has_shelf = owner->keeping.storage != STORAGE_IN_PLACE;

    if (has_shelf && fti->fec != FCAST_RS)
        return "its code is not Reed-Solomon; valid: --storage in-place";
    if (owner->keeping.is_direct && fti->symbol_bytes % DISK_UNIT)
        return "its symbols are not multiples of 512 bytes; valid: --io cached";
    const struct fcast_shelf_config cfg = shelf_of(owner, fti);
    if (has_shelf && fcast_shelf_need(&cfg) > cfg.max_bytes)
        return "this scheme needs more memory for it; valid: a larger --memory";
    return NULL;
}

/* Makes a shelf on the place's files. Returns -1 with errno. */
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

/* Makes an object of this many blocks gather its symbols. Returns -1 with errno. */
static int begin_gathering(struct place *p, uint32_t blocks)
{
    struct places *owner = p->owner;
    const uint32_t streams = blocks < UINT16_MAX ? blocks : UINT16_MAX;

    if (owner->gather)
        (void)gather_widen(owner->gather, streams);
    else
        owner->gather = gather_new(streams, WAITING_BYTES);
    if (!owner->gather) {
        errno = ENOMEM;
        return -1;
    }
    p->gathered_data = (struct gather_file){put_data, p, 0};
    p->gathered_repair = (struct gather_file){put_repair, p, 0};
    p->is_gathered = true;
    return 0;
}

/* Reads the notes of an earlier process, or writes the first one. Returns -1 with errno. */
static int begin_notes(struct place *p, const struct fcast_fti *fti, uint32_t blocks, bool in_place)
{
    const uint64_t waiting = WAITING_BYTES / fti->symbol_bytes;
    const uint32_t part = fti->block_max / PART_OF_BLOCK;
    uint64_t most = (uint64_t)blocks * (part < NOTES_OF_BLOCK ? part : NOTES_OF_BLOCK);
    uint32_t first[2] = {SHIFT_NOTE, 0};
    struct stat st;

    if (fstat(p->notes_fd, &st) < 0)
        return -1;
    /* An earlier process was killed while it wrote a note. */
    p->notes_end = (uint64_t)st.st_size / NOTE_BYTES * NOTE_BYTES;
    if (ftruncate(p->notes_fd, (off_t)p->notes_end) < 0)
        return -1;
    most = most < waiting ? most : waiting;
    most = most < NOTES_MAX ? most : NOTES_MAX;
    p->notes_most = p->is_gathered && most > NOTES ? (unsigned)most : NOTES;
    p->has_shift = p->notes_end > 0;
    if (p->is_gathered && !p->has_shift) {
        memcpy(p->notes, first, sizeof first);
        p->count = 1;
    } else if (in_place && p->has_shift) {
        if (file_read_at(p->notes_fd, 0, first, sizeof first) < 0)
            return -1;
        p->shift = first[0] == SHIFT_NOTE && first[1] <= fti->length ? first[1] : 0;
    }
    return 0;
}

/* Opens the three files. Returns -1 with errno. */
static int open_files(struct place *p, const struct fcast_fti *fti)
{
    const struct places *owner = p->owner;
    const uint32_t blocks = fcast_partition_of(fti).blocks;
    char data[PLACE_NAME_BYTES + 16], repair[PLACE_NAME_BYTES + 16];
    bool in_place = owner->keeping.storage == STORAGE_IN_PLACE && fti->length;

    snprintf(data, sizeof data, "%s.data", p->name);
    snprintf(repair, sizeof repair, "%s.repair", p->name);
    p->notes_fd = open_part(owner, p->name, "notes");
    if (p->notes_fd < 0 || disk_open(&p->data, owner->dir_fd, data, owner->keeping.is_direct) < 0 ||
        disk_open(&p->repair, owner->dir_fd, repair, owner->keeping.is_direct) < 0 ||
        (in_place && !owner->keeping.is_direct && begin_gathering(p, blocks) < 0) ||
        begin_notes(p, fti, blocks, in_place) < 0)
        return -1;
    /* Schemes write whole blocks, and more of them than the object has. */
    return owner->keeping.storage == STORAGE_IN_PLACE ? ftruncate(p->data.fd, (off_t)fti->length)
                                                      : 0;
}

enum fcast_begin place_open(struct places *owner, uint64_t source, uint64_t tsi, uint64_t toi,
                            const struct fcast_fti *fti, struct fcast_place *out)
{
    char name[PLACE_NAME_BYTES];

    make_name(owner, name, source, tsi, toi, fti);
    if (has_part(owner, name, "done"))
        return FCAST_HAVE;
    const bool is_new = !has_part(owner, name, "notes");
    owner->why = fti->length ? why_not(owner, fti) : NULL;
    struct place *p = owner->why ? NULL : calloc(1, sizeof *p);
    if (!p)
        return FCAST_REFUSE;
    p->owner = owner;
    p->length = fti->length;
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
            place_remove_parts(owner, name);
        free(p);
        errno = why;
        return FCAST_REFUSE;
    }
    return FCAST_WANT;
}

/* Writes out or discards what a scheme has in memory. */
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
        place_remove_parts(owner, p->name);
    if (done) {
        int fd = open_part(owner, p->name, "done");
        if (fd >= 0)
            close(fd);
    }
    free(p);
}

bool place_may_move(void *place, uint64_t at, uint64_t bytes)
{
    const struct place *p = place;
    uint64_t tail = p->length - bytes;

    return p->is_gathered && bytes && at == p->shift && at + bytes <= p->length && tail <= TAIL_MAX;
}

bool place_move(void *place, uint64_t at, uint64_t bytes, int dir_fd, const char *name)
{
    struct place *p = place;
    uint8_t tail[TAIL_MAX];
    char data[PLACE_NAME_BYTES + 16];

    if (!place_may_move(p, at, bytes) || write_waiting(p) < 0)
        return false;
    size_t len = (size_t)(p->length - bytes);
    snprintf(data, sizeof data, "%s.data", p->name);
    if (file_read_at(p->data.fd, bytes, tail, len) < 0 || ftruncate(p->data.fd, (off_t)bytes) < 0)
        return false;
    if (renameat(p->owner->dir_fd, data, dir_fd, name) == 0)
        return true;
    /* Another process continues with it if this one cannot. */
    file_write_at(p->data.fd, bytes, tail, len);
    return false;
}

void places_close(struct places *p)
{
    gather_free(p->gather);
    p->gather = NULL;
}
