/* SPDX-License-Identifier: Apache-2.0 */
#include "lane.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "privileges.h"
#include "vlan.h"

#define OWNER_BYTES 32
#define NUMBER_BYTES 24

static int keeper_fd = -1;

bool lane_is_ours(const struct conf_multicast *m)
{
    return m->nic[0] != '\0';
}

/* Identifies the server by its queue: FNV-1a of the path, because vlanutil accepts only words. */
static void owner_of(const struct options *opt, char out[OWNER_BYTES])
{
    char real[PATH_MAX];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (!realpath(opt->queue, real))
        snprintf(real, sizeof real, "%s", opt->queue);
    for (const char *c = real; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    snprintf(out, OWNER_BYTES, "ldmd-%016" PRIx64, hash);
}

/* The words of a command line, which are not modified. */
#define WORD(text) ((char *)(uintptr_t)(text))

static int run(const struct options *opt, const char *verb, const char *interface,
               const char *const more[4])
{
    char owner[OWNER_BYTES];
    char *argv[] = {WORD(opt->conf->set.vlanutil),
                    WORD(verb),
                    WORD(interface),
                    WORD("--owner"),
                    owner,
                    WORD(more[0]),
                    WORD(more[1]),
                    WORD(more[2]),
                    WORD(more[3]),
                    NULL};

    owner_of(opt, owner);
    return vlan_execute(argv);
}

static void interface_of(const struct options *opt, const struct conf_multicast *m, char out[32])
{
    if (conf_makes_vlan(opt->conf, m))
        snprintf(out, 32, "%s.%u", m->nic, m->vlan);
    else
        snprintf(out, 32, "%s", m->nic); /* the switch's port tags */
}

static int create(const struct options *opt, const struct conf_multicast *m, const char *interface)
{
    char addr[INET_ADDRSTRLEN], cidr[INET_ADDRSTRLEN + 4], group[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &m->fmtp_addr, addr, sizeof addr);
    snprintf(cidr, sizeof cidr, "%s/%u", addr, m->subnet_len);
    inet_ntop(AF_INET, &m->group.sin_addr, group, sizeof group);
    return run(opt, "create", interface, (const char *const[4]){cidr, group});
}

/* Shapes to r_mc for multicast, and for the rest to r_uc, or as much as r_mc. */
static int shape(const struct options *opt, const struct conf_multicast *m, const char *interface)
{
    const struct conf_settings *set = &opt->conf->set;
    char rate[NUMBER_BYTES], other[NUMBER_BYTES], buffer[NUMBER_BYTES];
    char group[INET_ADDRSTRLEN], host[INET_ADDRSTRLEN + 4];

    inet_ntop(AF_INET, &m->group.sin_addr, group, sizeof group);
    snprintf(host, sizeof host, "%s/32", group);
    snprintf(rate, sizeof rate, "%" PRIu64, m->r_mc_bps);
    snprintf(other, sizeof other, "%" PRIu64, set->r_uc_bps >= 1000 ? set->r_uc_bps : m->r_mc_bps);
    snprintf(buffer, sizeof buffer, "%" PRIu64, set->nic_buffer_bytes);
    return run(opt, "shape", interface, (const char *const[4]){rate, buffer, host, other});
}

static void undo(const struct options *opt, const struct conf_multicast *m, const char *interface)
{
    const char *const none[4] = {NULL};

    /* Both ends: do not remove an interface that already existed and was correct. */
    if (opt->conf->set.nic_buffer_bytes != 0)
        (void)run(opt, "unshape", interface, none);
    if (conf_makes_vlan(opt->conf, m))
        (void)run(opt, "destroy", interface, none);
}

static int make(const struct options *opt, const struct conf_multicast *m, const char *interface)
{
    if (conf_makes_vlan(opt->conf, m) && create(opt, m, interface) < 0)
        return -1;
    if (opt->conf->set.nic_buffer_bytes == 0 || shape(opt, m, interface) == 0)
        return 0;
    undo(opt, m, interface);
    return -1;
}

/* Signals are blocked here as in all processes: only the socket says when to end. A new mldm starts
 * at least a second later. */
static void keep(const struct options *opt, const struct conf_multicast *m, int fd)
{
    char interface[32], end;

    log_set_prog("lane");
    privileges_use_reserve(true);
    interface_of(opt, m, interface);
    int rc = make(opt, m, interface);
    if (rc == 0)
        log_note("Interface %s is made", interface);
    bool heard = send(fd, &rc, sizeof rc, MSG_NOSIGNAL) > 0;
    if (rc < 0)
        return;
    while (heard && recv(fd, &end, 1, 0) < 0 && errno == EINTR)
        ;
    undo(opt, m, interface);
    log_note("Interface %s is removed", interface);
}

int lane_make(const struct options *opt, const struct conf_multicast *m)
{
    int pair[2], rc = -1;

    if (!lane_is_ours(m))
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        log_error("cannot make the interface of %s: %s", m->nic, strerror(errno));
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        keep(opt, m, pair[1]);
        _exit(0);
    }
    close(pair[1]);
    if (pid > 0 && recv(pair[0], &rc, sizeof rc, 0) == (ssize_t)sizeof rc && rc == 0) {
        keeper_fd = pair[0];
        return 0;
    }
    if (pid < 0)
        log_error("cannot make the interface of %s: %s", m->nic, strerror(errno));
    close(pair[0]);
    return -1;
}

void lane_remove(void)
{
    char ended;

    if (keeper_fd < 0 || send(keeper_fd, "", 1, MSG_NOSIGNAL) < 0)
        return;
    while (recv(keeper_fd, &ended, 1, 0) < 0 && errno == EINTR)
        ;
    close(keeper_fd);
    keeper_fd = -1;
}

void lane_sweep(const struct options *opt)
{
    char owner[OWNER_BYTES];
    char *argv[] = {WORD(opt->conf->set.vlanutil), WORD("sweep"), WORD("--owner"), owner, NULL};
    bool any = false;

    for (size_t i = 0; i < opt->conf->nmulticasts; i++)
        any = any || lane_is_ours(&opt->conf->multicasts[i]);
    if (!any)
        return;
    owner_of(opt, owner);
    pid_t pid = fork(); /* it alone uses the reserve */
    if (pid == 0) {
        privileges_use_reserve(true);
        _exit(vlan_execute(argv) == 0 ? 0 : 1);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
