/* SPDX-License-Identifier: Apache-2.0
 *
 * Restricts a process that reads untrusted input to a list of system calls (seccomp) and of files
 * and TCP ports (Landlock). Both last until the process ends and apply to its threads and children.
 * A kernel without one of them is not an error: the caller says so in its log.
 */
#ifndef SANDBOX_H
#define SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { /* rights to a file, or to everything below a directory */
       SANDBOX_READ = 1,
       SANDBOX_WRITE = 2,  /* existing files */
       SANDBOX_CREATE = 4, /* creates files; REMOVE: removes, renames and truncates them */
       SANDBOX_REMOVE = 8,
       SANDBOX_FILES = 15,
       SANDBOX_MOVE = 16,       /* with SANDBOX_FILES: renames into another directory */
       SANDBOX_DIRECTORIES = 32 /* creates directories */
};
struct sandbox_path {
    const char *path; /* skipped if it does not exist */
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
    bool forks;   /* creates processes, which inherit the sandbox, and ends them */
    bool signals; /* probes and ends processes outside the sandbox by kill(2) */
    bool overflow;
};

/* Permits what every program needs that resolves names and uses threads and OpenSSL: reading the
 * system's libraries and configuration. whole_etc: all of /etc, not only what name services
 * read. */
void sandbox_init(struct sandbox *s, bool whole_etc);
/* Adds a path. The text must remain valid until sandbox_enter(). */
void sandbox_path(struct sandbox *s, const char *path, unsigned may);
/* Adds a TCP port that the program may bind, or connect to. */
void sandbox_bind(struct sandbox *s, uint16_t port);
void sandbox_connect(struct sandbox *s, uint16_t port);

struct sandbox_state {
    bool seccomp;
    int landlock; /* ABI version; 0: none */
};
/* Returns what this kernel supports. */
struct sandbox_state sandbox_probe(void);
/* Enters the sandbox for good, with everything that this kernel supports. Call it before starting
 * threads. Returns 0, or -1 and why. */
int sandbox_enter(const struct sandbox *s, char *why, size_t why_bytes);
#define SANDBOX_TEXT 80
/* "seccomp, Landlock (ABI 7)". Returns out. */
const char *sandbox_text(const struct sandbox_state *s, char out[SANDBOX_TEXT]);

#endif
