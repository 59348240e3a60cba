/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox.h"

#include <stdio.h>
#include <string.h>

#include "sandbox_impl.h"

/* Directories of the system's libraries and data; missing ones are skipped. */
static const char *const system_paths[] = {"/usr",
                                           "/lib",
                                           "/lib32",
                                           "/lib64",
                                           "/proc",
                                           "/sys/devices/system/cpu",
                                           "/run/systemd",
                                           "/run/nscd",
                                           "/run/resolvconf",
                                           "/run/NetworkManager"};

/* What name services and libraries read in /etc. */
static const char *const etc_paths[] = {
    "/etc/hosts",       "/etc/host.conf",       "/etc/resolv.conf",   "/etc/nsswitch.conf",
    "/etc/services",    "/etc/protocols",       "/etc/networks",      "/etc/gai.conf",
    "/etc/ld.so.cache", "/etc/ld.so.conf",      "/etc/ld.so.preload", "/etc/localtime",
    "/etc/timezone",    "/etc/ssl/openssl.cnf", "/etc/pki",           "/etc/crypto-policies",
    "/etc/netsvc.conf", "/etc/mdns.allow"};

static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"};

void sandbox_path(struct sandbox *s, const char *path, unsigned may)
{
    if (s->npaths == SANDBOX_PATHS_MAX)
        s->overflow = true;
    else
        s->paths[s->npaths++] = (struct sandbox_path){path, may};
}

void sandbox_init(struct sandbox *s, bool whole_etc)
{
    *s = (struct sandbox){0};
    for (size_t i = 0; i < sizeof system_paths / sizeof *system_paths; i++)
        sandbox_path(s, system_paths[i], SANDBOX_READ);
    for (size_t i = 0; !whole_etc && i < sizeof etc_paths / sizeof *etc_paths; i++)
        sandbox_path(s, etc_paths[i], SANDBOX_READ);
    if (whole_etc)
        sandbox_path(s, "/etc", SANDBOX_READ);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        sandbox_path(s, devices[i], SANDBOX_READ | SANDBOX_WRITE);
}

static void add_port(struct sandbox *s, uint16_t ports[SANDBOX_PORTS_MAX], size_t *n, uint16_t port)
{
    if (*n == SANDBOX_PORTS_MAX)
        s->overflow = true;
    else
        ports[(*n)++] = port;
}

void sandbox_bind(struct sandbox *s, uint16_t port)
{
    add_port(s, s->binds, &s->nbinds, port);
}

void sandbox_connect(struct sandbox *s, uint16_t port)
{
    add_port(s, s->connects, &s->nconnects, port);
}

struct sandbox_state sandbox_probe(void)
{
    return (struct sandbox_state){sandbox_has_seccomp(), sandbox_landlock_abi()};
}

int sandbox_enter(const struct sandbox *s, char *why, size_t why_bytes)
{
    struct sandbox_state has = sandbox_probe();

    if (s->overflow) {
        snprintf(why, why_bytes, "more than %d paths or %d ports", SANDBOX_PATHS_MAX,
                 SANDBOX_PORTS_MAX);
        return -1;
    }
    /* Landlock first: the seccomp filter does not permit its system calls. */
    if (has.landlock > 0 && sandbox_enter_landlock(s, has.landlock, why, why_bytes) < 0)
        return -1;
    return has.seccomp ? sandbox_enter_seccomp(s, why, why_bytes) : 0;
}

const char *sandbox_text(const struct sandbox_state *s, char out[SANDBOX_TEXT])
{
    char landlock[32] = "no Landlock in this kernel";

    if (s->landlock > 0)
        snprintf(landlock, sizeof landlock, "Landlock (ABI %d)", s->landlock);
    snprintf(out, SANDBOX_TEXT, "%s, %s", s->seccomp ? "seccomp" : "no seccomp in this kernel",
             landlock);
    return out;
}
