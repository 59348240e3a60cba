/* SPDX-License-Identifier: Apache-2.0
 *
 * Landlock (landlock(7)) by its system calls. The constants belong to the kernel's ABI; headers
 * older than the kernel lack the newer ones, so they are defined here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox_impl.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

enum { VERSION_FLAG = 1, RULE_PATH = 1, RULE_PORT = 2 };
/* File system access rights, as bits. */
enum {
    FS_WRITE = 1 << 1,
    FS_READ = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_REMOVE_FILE = 1 << 5,
    FS_MAKE_DIR = 1 << 7,
    FS_MAKE_REG = 1 << 8,
    FS_ABI_1 = (1 << 13) - 1, /* includes execute, which is granted nowhere */
    FS_REFER = 1 << 13,       /* since ABI 2 */
    FS_TRUNCATE = 1 << 14,    /* since ABI 3 */
    FS_IOCTL_DEV = 1 << 15,   /* since ABI 5 */
    FS_OF_FILES = FS_WRITE | FS_READ | FS_TRUNCATE | FS_IOCTL_DEV | 1
};
enum { NET_BIND = 1, NET_CONNECT = 2 };        /* since ABI 4 */
enum { SCOPE_ABSTRACT = 1, SCOPE_SIGNAL = 2 }; /* since ABI 6 */

struct ruleset_attr {
    uint64_t fs, net, scoped;
};
struct path_attr {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed));
struct port_attr {
    uint64_t allowed, port;
};

int sandbox_landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, VERSION_FLAG);

    return abi > 0 ? (int)abi : 0;
}

static uint64_t handled_fs(int abi)
{
    return FS_ABI_1 | (abi >= 2 ? FS_REFER : 0u) | (abi >= 3 ? FS_TRUNCATE : 0u) |
           (abi >= 5 ? FS_IOCTL_DEV : 0u);
}

static uint64_t rights(unsigned may)
{
    return ((may & SANDBOX_READ) != 0 ? FS_READ | FS_READ_DIR : 0u) |
           ((may & SANDBOX_WRITE) != 0 ? FS_WRITE : 0u) |
           ((may & SANDBOX_CREATE) != 0 ? FS_MAKE_REG : 0u) |
           ((may & SANDBOX_REMOVE) != 0 ? FS_REMOVE_FILE | FS_TRUNCATE : 0u) |
           ((may & SANDBOX_MOVE) != 0 ? FS_REFER : 0u) |
           ((may & SANDBOX_DIRECTORIES) != 0 ? FS_MAKE_DIR : 0u);
}

/* Returns 0, or an errno value. A path that does not exist needs no rule. */
static int allow_path(int ruleset, const struct sandbox_path *p, uint64_t handled)
{
    struct path_attr attr = {.allowed = rights(p->may) & handled};
    struct stat st;

    attr.fd = open(p->path, O_PATH | O_CLOEXEC);
    if (attr.fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : errno;
    int e = fstat(attr.fd, &st) < 0 ? errno : 0;
    if (!S_ISDIR(st.st_mode))
        attr.allowed &= FS_OF_FILES;
    if (e == 0 && syscall(SYS_landlock_add_rule, ruleset, RULE_PATH, &attr, 0) < 0)
        e = errno;
    close(attr.fd);
    return e;
}

static int allow_ports(int ruleset, uint64_t right, const uint16_t *ports, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct port_attr attr = {right, ports[i]};

        if (syscall(SYS_landlock_add_rule, ruleset, RULE_PORT, &attr, 0) < 0)
            return errno;
    }
    return 0;
}

static int allow(int ruleset, const struct sandbox *s, const struct ruleset_attr *handled)
{
    int e = 0;

    for (size_t i = 0; e == 0 && i < s->npaths; i++)
        e = allow_path(ruleset, &s->paths[i], handled->fs);
    if (e == 0 && (handled->net & NET_BIND) != 0)
        e = allow_ports(ruleset, NET_BIND, s->binds, s->nbinds);
    if (e == 0 && (handled->net & NET_CONNECT) != 0)
        e = allow_ports(ruleset, NET_CONNECT, s->connects, s->nconnects);
    return e;
}

int sandbox_enter_landlock(const struct sandbox *s, int abi, char *why, size_t why_bytes)
{
    struct ruleset_attr handled = {.fs = handled_fs(abi)};
    size_t bytes = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;

    if (abi >= 4)
        handled.net = NET_BIND | (s->connects_anywhere ? 0u : NET_CONNECT);
    if (abi >= 6)
        handled.scoped = SCOPE_ABSTRACT | (s->signals ? 0u : SCOPE_SIGNAL);
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, bytes, 0), e = 0;
    if (ruleset < 0)
        e = errno;
    if (e == 0)
        e = allow(ruleset, s, &handled);
    if (e == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
                   syscall(SYS_landlock_restrict_self, ruleset, 0) < 0))
        e = errno;
    if (ruleset >= 0)
        close(ruleset);
    if (e != 0)
        snprintf(why, why_bytes, "Landlock: %s", strerror(e));
    return e != 0 ? -1 : 0;
}
