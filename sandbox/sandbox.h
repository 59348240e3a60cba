/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process that talks to strangers may still do: a list of system calls (seccomp) and of
 * files and TCP ports (Landlock). Both last until the process ends and hold for its threads and
 * children. A kernel without one of them is no error: the caller says so in its log.
 */
#ifndef SANDBOX_H
#define SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { /* of a file, or of all that is below a directory */
       SANDBOX_READ = 1,
       SANDBOX_WRITE = 2,  /* files that are there */
       SANDBOX_CREATE = 4, /* makes files; REMOVE: removes, renames, truncates them */
       SANDBOX_REMOVE = 8,
       SANDBOX_FILES = 15,
       SANDBOX_MOVE = 16,       /* with FILES: renames into another directory */
       SANDBOX_DIRECTORIES = 32 /* makes directories */
};
struct sandbox_path {
    const char *path; /* one that is not there is left out */
    unsigned may;
};

enum { SANDBOX_PATHS_MAX = 80, SANDBOX_PORTS_MAX = 68 };
struct sandbox {
    struct sandbox_path paths[SANDBOX_PATHS_MAX];
    size_t npaths;
    uint16_t binds[SANDBOX_PORTS_MAX],
        connects[SANDBOX_PORTS_MAX]; /* TCP; 0: the system's choice */
    size_t nbinds, nconnects;
    bool connects_anywhere;
    bool forks;   /* makes processes, which inherit all this, and ends them */
    bool signals; /* asks for and ends processes outside by kill(2) */
    bool overflow;
};

/* What every program needs that resolves names, by thread-safe libraries and openssl: to read the
 * system's libraries and configuration. whole_etc: of /etc all, not only what name services read.
 */
void sandbox_init(struct sandbox *s, bool whole_etc);
/* A further path. The text must stay until sandbox_enter. */
void sandbox_path(struct sandbox *s, const char *path, unsigned may);
/* TCP ports that it may bind and connect to. */
void sandbox_bind(struct sandbox *s, uint16_t port);
void sandbox_connect(struct sandbox *s, uint16_t port);

struct sandbox_state {
    bool seccomp;
    int landlock; /* ABI version; 0: none */
};
/* What this kernel has. */
struct sandbox_state sandbox_probe(void);
/* Enters it, for good: of what the kernel has, all. Call it before there are threads. 0, or -1 and
 * why. */
int sandbox_enter(const struct sandbox *s, char *why, size_t why_bytes);
#define SANDBOX_TEXT 80
/* "seccomp, Landlock (ABI 7)". Returns out. */
const char *sandbox_text(const struct sandbox_state *s, char out[SANDBOX_TEXT]);

#endif
