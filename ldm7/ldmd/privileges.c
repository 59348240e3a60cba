/* SPDX-License-Identifier: Apache-2.0 */
#include "privileges.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(cap) ((uint32_t)1 << (cap))
#define RESERVE (BIT(CAP_NET_ADMIN) | BIT(CAP_NET_BIND_SERVICE))

static bool dropped;

/* libcap would be another library for a single system call. */
static int set_capabilities(uint32_t effective, uint32_t permitted, uint32_t inheritable)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = effective, .permitted = permitted, .inheritable = inheritable}};

    return (int)syscall(SYS_capset, &head, data);
}

static uint32_t permitted_now(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    return syscall(SYS_capget, &head, data) < 0 ? 0 : data[0].permitted;
}

int privileges_drop(const char *user, char *why, size_t why_bytes)
{
    uint32_t keep = permitted_now() & RESERVE;

    errno = 0;
    const struct passwd *p = getpwnam(user);
    if (!p) {
        snprintf(why, why_bytes, "there is no user \"%s\"%s%s", user, errno != 0 ? ": " : "",
                 errno != 0 ? strerror(errno) : "");
        return -1;
    }
    if (geteuid() != 0) {
        if (p->pw_uid == getuid())
            return 0;
        snprintf(why, why_bytes, "only root can become user \"%s\"", user);
        return -1;
    }
    if (p->pw_uid == 0)
        return 0;
    /* The order matters: groups while still root, the user last. */
    if (prctl(PR_SET_KEEPCAPS, 1) < 0 || initgroups(user, p->pw_gid) < 0 ||
        setresgid(p->pw_gid, p->pw_gid, p->pw_gid) < 0 ||
        setresuid(p->pw_uid, p->pw_uid, p->pw_uid) < 0) {
        snprintf(why, why_bytes, "cannot become user \"%s\": %s", user, strerror(errno));
        return -1;
    }
    if (set_capabilities(0, keep, keep) < 0 || prctl(PR_SET_KEEPCAPS, 0) < 0) {
        snprintf(why, why_bytes, "cannot give up capabilities: %s", strerror(errno));
        return -1;
    }
    if (setuid(0) == 0 || seteuid(0) == 0) {
        snprintf(why, why_bytes, "user \"%s\" can become root again", user);
        return -1;
    }
    dropped = true;
    return 0;
}

void privileges_use_reserve(bool inherit)
{
    uint32_t keep = permitted_now() & RESERVE;

    if (!dropped || set_capabilities(keep, keep, keep) < 0 || !inherit)
        return;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_BIND_SERVICE, 0, 0);
}

void privileges_renounce(bool forever)
{
    if (dropped)
        set_capabilities(0, 0, 0);
    if (dropped && forever)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}
