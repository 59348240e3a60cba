/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles what earlier processes left below DIR/.fcast.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_at.h"
#include "place_impl.h"

#define COPY "copying"

void place_remove_parts(const struct places *p, const char *name)
{
    static const char *const suffixes[] = {"notes", "repair", "data"};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char path[PLACE_NAME_BYTES + 16];
        snprintf(path, sizeof path, "%s.%s", name, suffixes[i]);
        unlinkat(p->dir_fd, path, 0);
    }
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

struct part { /* of an object; all parts of one object have the same name */
    char name[PLACE_NAME_BYTES];
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

    if (n == 0 || n >= PLACE_NAME_BYTES || file[n] != '.' || strcmp(file + n, ".done") == 0 ||
        fstatat(p->dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *out = (struct part){.bytes = (uint64_t)st.st_blocks * 512, .changed = st.st_mtime};
    memcpy(out->name, file, n);
    return true;
}

/* gcc's analyzer believes that the list leaks when it cannot grow. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
/* Returns all objects' parts, one entry per object; the caller frees them. */
static struct part *list_parts(const struct places *p, size_t *count)
{
    int fd = openat(p->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct part *list = NULL;
    size_t n = 0, room = 0;

    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (n == room) {
            struct part *more = reallocarray(list, room = room ? 2 * room : 64, sizeof *list);
            if (!more)
                break; /* out of memory: the bound covers those seen so far */
            list = more;
        }
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
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic pop
#endif

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
        place_remove_parts(p, list[i].name);
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
