/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and opens files only below a directory, whatever a path made from network input says: no
 * "..", no absolute path, no symbolic link on the way or at the end, no control characters, only
 * regular files. Creates missing directories.
 */
#ifndef COMMON_DATADIR_H
#define COMMON_DATADIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DATADIR_PATH_MAX 4096u

struct datadir {
    int fd;
    bool walk; /* openat2(2) is missing: descend component by component (tests set this) */
    unsigned long refused; /* paths that would have left the directory or reached `own` */
    const char *own;       /* a name in the directory reserved for the program; NULL: none */
};

/* Returns 0, or -1 with errno. Symbolic links on the way to the directory itself are followed. */
int datadir_open(struct datadir *d, const char *path);
/* Closes the directory. */
void datadir_close(struct datadir *d);

/* Opens a file for appending and creates it if necessary. Returns -1 and a reason on failure. */
int datadir_append(struct datadir *d, const char *path, char *err, size_t err_bytes);

/* Removes the temporary file that process `pid` left beside path when it was killed between
 * datadir_new() and datadir_new_finish(). Returns -1 and a reason on failure. */
int datadir_remove_begun(struct datadir *d, const char *path, pid_t pid, char *err,
                         size_t err_bytes);

/* A new file that replaces path atomically when it is finished. */
struct datadir_new {
    int fd, dir_fd;
    char name[256], temporary[64];
};
/* Creates the file under a temporary name beside path. Returns -1 and a reason on failure. */
int datadir_new(struct datadir *d, const char *path, struct datadir_new *out, char *err,
                size_t err_bytes);
/* Opens only the directory of path and sets name. The caller moves the file there with renameat(2)
 * and closes dir_fd. Returns -1 and a reason on failure. */
int datadir_aim(struct datadir *d, const char *path, struct datadir_new *out, char *err,
                size_t err_bytes);
/* keep: moves the file into place; otherwise removes it. Both close all descriptors. Returns -1 and
 * a reason on failure. */
int datadir_new_finish(struct datadir_new *n, bool keep, char *err, size_t err_bytes);

#endif
