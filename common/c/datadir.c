/* SPDX-License-Identifier: Apache-2.0 */
#include "datadir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TEMPORARY ".pqact.%d."
#define DIRECTORY (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

int datadir_open(struct datadir *d, const char *path)
{
    *d = (struct datadir){.fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    return d->fd < 0 ? -1 : 0;
}

void datadir_close(struct datadir *d)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

static int refuse(struct datadir *d, char *err, size_t err_bytes, const char *why)
{
    d->refused++;
    snprintf(err, err_bytes, "refused: %s", why);
    return -1;
}

/* Normalizes path in place (no empty components, no ".") and splits it into its directory ("" if
 * none) and its last name. */
static int cut(struct datadir *d, const char *path, char clean[DATADIR_PATH_MAX], char **name,
               char *err, size_t err_bytes)
{
    size_t used = 0;

    *name = clean;
    if (path[0] == '/')
        return refuse(d, err, err_bytes, "absolute path");
    for (const char *p = path; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return refuse(d, err, err_bytes, "control character");
    for (const char *p = path; *p != '\0';) {
        size_t n = strcspn(p, "/");

        if (n == 2 && p[0] == '.' && p[1] == '.')
            return refuse(d, err, err_bytes, "\"..\"");
        if (n > 255 || used + n + 2 > DATADIR_PATH_MAX) {
            snprintf(err, err_bytes, "%s", strerror(ENAMETOOLONG));
            return -1;
        }
        if (n > 0 && !(n == 1 && p[0] == '.')) {
            if (used > 0)
                clean[used++] = '/';
            *name = clean + used;
            memcpy(clean + used, p, n);
            used += n;
        }
        p += n + (p[n] == '/');
        if (*p == '\0' && (p[-1] == '/' || (n == 1 && p[-1] == '.')))
            return refuse(d, err, err_bytes, "not the name of a file");
    }
    clean[used] = '\0';
    if (used == 0)
        return refuse(d, err, err_bytes, "empty path");
    if (*name > clean)
        (*name)[-1] = '\0';
    size_t first = strcspn(clean, "/");
    if (d->own && strncmp(clean, d->own, first) == 0 && d->own[first] == '\0')
        return refuse(d, err, err_bytes, "the program's own files");
    return 0;
}

/* Descends one component at a time, following no symbolic link and creating missing directories. */
static int walk(int top, char *dir)
{
    int at = fcntl(top, F_DUPFD_CLOEXEC, 0);

    for (char *p = dir, *next; at >= 0 && p; p = next) {
        next = strchr(p, '/');
        if (next)
            *next++ = '\0';
        int below = openat(at, p, DIRECTORY);
        if (below < 0 && errno == ENOENT && (mkdirat(at, p, 0777) == 0 || errno == EEXIST))
            below = openat(at, p, DIRECTORY);
        int e = errno;
        close(at);
        errno = e;
        at = below;
    }
    return at;
}

static int open_dir(struct datadir *d, char *dir, char *err, size_t err_bytes)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = -1;

    if (*dir == '\0')
        fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
    else if (!d->walk)
        fd = (int)syscall(SYS_openat2, d->fd, dir, &how, sizeof how);
    if (fd < 0 && *dir != '\0' &&
        (d->walk || errno == ENOSYS || errno == EPERM || errno == ENOENT)) {
        d->walk = d->walk || errno == ENOSYS || errno == EPERM;
        fd = walk(d->fd, dir);
    }
    if (fd >= 0)
        return fd;
    /* With O_NOFOLLOW and O_DIRECTORY, opening a link fails with "not a directory". */
    if (errno == ELOOP || errno == EXDEV || errno == ENOTDIR)
        return refuse(d, err, err_bytes, "a symbolic link or a file where a directory should be");
    snprintf(err, err_bytes, "directory: %s", strerror(errno));
    return -1;
}

int datadir_append(struct datadir *d, const char *path, char *err, size_t err_bytes)
{
    int dir;

    char clean[DATADIR_PATH_MAX], *name;
    if (cut(d, path, clean, &name, err, err_bytes) < 0 ||
        (dir = open_dir(d, name > clean ? clean : (char[]){""}, err, err_bytes)) < 0)
        return -1;
    /* O_NONBLOCK: opening a FIFO of that name must not block. */
    int fd = openat(dir, name,
                    O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                    0666);
    int e = errno;
    close(dir);
    if (fd < 0 && (e == ELOOP || e == ENXIO))
        return refuse(d, err, err_bytes,
                      "a symbolic link, FIFO or socket where the file should be");
    if (fd < 0) {
        snprintf(err, err_bytes, "%s", strerror(e));
        return -1;
    }
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return refuse(d, err, err_bytes, "not a regular file");
}

int datadir_remove_begun(struct datadir *d, const char *path, pid_t pid, char *err,
                         size_t err_bytes)
{
    char clean[DATADIR_PATH_MAX], begin[32], *name;
    int dir;

    if (cut(d, path, clean, &name, err, err_bytes) < 0 ||
        (dir = open_dir(d, name > clean ? clean : (char[]){""}, err, err_bytes)) < 0)
        return -1;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    int e = list ? 0 : errno;
    size_t len = (size_t)snprintf(begin, sizeof begin, TEMPORARY, (int)pid);
    for (const struct dirent *entry; list && (entry = readdir(list));)
        if (strncmp(entry->d_name, begin, len) == 0 && unlinkat(dir, entry->d_name, 0) < 0)
            e = errno;
    if (list)
        closedir(list);
    close(dir);
    if (!e)
        return 0;
    snprintf(err, err_bytes, "%s", strerror(e));
    return -1;
}

int datadir_aim(struct datadir *d, const char *path, struct datadir_new *out, char *err,
                size_t err_bytes)
{
    *out = (struct datadir_new){.fd = -1, .dir_fd = -1};
    char clean[DATADIR_PATH_MAX], *name;
    if (cut(d, path, clean, &name, err, err_bytes) < 0 ||
        (out->dir_fd = open_dir(d, name > clean ? clean : (char[]){""}, err, err_bytes)) < 0)
        return -1;
    snprintf(out->name, sizeof out->name, "%s", name);
    struct stat st;
    if (fstatat(out->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode)) {
        close(out->dir_fd);
        return refuse(d, err, err_bytes, "not a regular file");
    }
    return 0;
}

int datadir_new(struct datadir *d, const char *path, struct datadir_new *out, char *err,
                size_t err_bytes)
{
    static unsigned number;

    if (datadir_aim(d, path, out, err, err_bytes) < 0)
        return -1;
    for (int tries = 0; tries < 100 && out->fd < 0 && (tries == 0 || errno == EEXIST); tries++) {
        snprintf(out->temporary, sizeof out->temporary, TEMPORARY "%u.tmp", (int)getpid(),
                 number++);
        out->fd = openat(out->dir_fd, out->temporary,
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    if (out->fd >= 0)
        return 0;
    snprintf(err, err_bytes, "%s", strerror(errno));
    close(out->dir_fd);
    return -1;
}

int datadir_new_finish(struct datadir_new *n, bool keep, char *err, size_t err_bytes)
{
    int e = 0;

    if (close(n->fd) < 0 && keep)
        e = errno;
    if (keep && e == 0 && renameat(n->dir_fd, n->temporary, n->dir_fd, n->name) < 0)
        e = errno;
    if (!keep || e != 0)
        unlinkat(n->dir_fd, n->temporary, 0);
    close(n->dir_fd);
    n->fd = n->dir_fd = -1;
    if (e == 0)
        return 0;
    snprintf(err, err_bytes, "%s", strerror(e));
    return -1;
}
