/* SPDX-License-Identifier: Apache-2.0
 *
 * Files below a directory and nowhere else, whatever a path says that was made of text from the
 * network: no "..", no absolute path, no symbolic link on the way or at its end, no control
 * characters, only regular files. Missing directories are made.
 */
#ifndef COMMON_DATADIR_H
#define COMMON_DATADIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DATADIR_PATH_MAX 4096u

struct datadir {
    int fd;
    bool walk;             /* no openat2(2) here: component by component (tests set it) */
    unsigned long refused; /* paths that would have led out of it, or to `own` */
    const char *own;       /* a name in it that is the program's; NULL: none */
};

/* 0 or -1 with errno. The directory itself may be reached by symbolic links. */
int datadir_open(struct datadir *d, const char *path);
/* Closes the directory. */
void datadir_close(struct datadir *d);

/* Opens (creates) a file to append to. -1 and a reason. */
int datadir_append(struct datadir *d, const char *path, char *err, size_t err_bytes);

/* Removes what a process that was killed began beside path by datadir_new(). -1 and a reason. */
int datadir_remove_begun(struct datadir *d, const char *path, pid_t pid, char *err,
                         size_t err_bytes);

/* A new file that takes path's place as a whole, when it is finished. */
struct datadir_new {
    int fd, dir_fd;
    char name[256], temporary[64];
};
/* Creates it under a temporary name beside path. -1 and a reason. */
int datadir_new(struct datadir *d, const char *path, struct datadir_new *out, char *err,
                size_t err_bytes);
/* Opens only the directory of path; name is set. The caller moves the file there by renameat(2),
 * and closes dir_fd. -1 and a reason. */
int datadir_aim(struct datadir *d, const char *path, struct datadir_new *out, char *err,
                size_t err_bytes);
/* keep: in its place; otherwise it is removed. Both close everything. -1 and a reason. */
int datadir_new_finish(struct datadir_new *n, bool keep, char *err, size_t err_bytes);

#endif
