/* SPDX-License-Identifier: Apache-2.0
 *
 * The permitted system calls. Calls forbidden by name fail with EPERM, unknown ones with ENOSYS, so
 * that the C library falls back to an older call.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox_impl.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

/* Permitted with any arguments. libseccomp leaves out names that this architecture lacks. */
static const char *const allowed[] = {
    /* input, output, waiting */
    "read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev",
    "pwritev2", "send", "sendto", "sendmsg", "sendmmsg", "recv", "recvfrom", "recvmsg", "recvmmsg",
    "recvmmsg_time64", "close", "close_range", "dup", "dup2", "dup3", "fcntl", "fcntl64", "lseek",
    "_llseek", "poll", "ppoll", "ppoll_time64", "select", "_newselect", "pselect6",
    "pselect6_time64", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
    "epoll_pwait2", "eventfd", "eventfd2", "signalfd", "signalfd4", "timerfd_create",
    "timerfd_settime", "timerfd_settime64", "timerfd_gettime", "timerfd_gettime64", "pipe", "pipe2",
    "splice", "sendfile", "sendfile64",
    /* existing sockets */
    "bind", "listen", "accept", "accept4", "connect", "getsockname", "getpeername", "setsockopt",
    "getsockopt", "shutdown",
    /* files, which Landlock bounds */
    "open", "openat", "stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat64",
    "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat",
    "getdents", "getdents64", "rename", "renameat", "renameat2", "unlink", "unlinkat", "link",
    "linkat", "utimensat", "utimensat_time64", "ftruncate", "ftruncate64", "fallocate", "fsync",
    "fdatasync", "sync_file_range", "fadvise64", "fadvise64_64", "flock", "statfs", "statfs64",
    "fstatfs", "fstatfs64", "getcwd", "umask",
    /* memory */
    "munmap", "madvise", "mremap", "brk", "msync", "mlock", "mlock2", "munlock", "mincore",
    "membarrier",
    /* threads and this process */
    "futex", "futex_time64", "futex_waitv", "get_robust_list", "set_robust_list", "rseq",
    "set_tid_address", "set_thread_area", "get_thread_area", "arch_prctl", "exit", "exit_group",
    "getpid", "getppid", "gettid", "getpgrp", "getpgid", "getsid", "getuid", "getuid32", "geteuid",
    "geteuid32", "getgid", "getgid32", "getegid", "getegid32", "getresuid", "getresuid32",
    "getresgid", "getresgid32", "getgroups", "getgroups32", "capget", "sched_yield",
    "sched_getaffinity", "sched_getparam", "sched_getscheduler", "getpriority", "getcpu",
    "getrusage", "times", "getrlimit", "ugetrlimit", "setrlimit", "prlimit64", "sysinfo", "uname",
    "getrandom", "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "rt_sigpending", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_sigsuspend", "sigaction",
    "sigprocmask", "sigreturn", "sigaltstack", "alarm",
    /* clocks */
    "clock_gettime", "clock_gettime64", "clock_getres", "clock_getres_time64", "clock_nanosleep",
    "clock_nanosleep_time64", "gettimeofday", "nanosleep", "time"};

/* What an attacker would try first. EPERM is a clearer answer than ENOSYS. */
static const char *const forbidden[] = {"execve",
                                        "execveat",
                                        "ptrace",
                                        "process_vm_readv",
                                        "process_vm_writev",
                                        "pidfd_getfd",
                                        "mount",
                                        "umount2",
                                        "pivot_root",
                                        "chroot",
                                        "unshare",
                                        "setns",
                                        "open_by_handle_at",
                                        "init_module",
                                        "finit_module",
                                        "delete_module",
                                        "kexec_load",
                                        "kexec_file_load",
                                        "bpf",
                                        "perf_event_open",
                                        "io_uring_setup",
                                        "userfaultfd",
                                        "keyctl",
                                        "add_key",
                                        "request_key",
                                        "setuid",
                                        "setgid",
                                        "setreuid",
                                        "setregid",
                                        "setresuid",
                                        "setresgid",
                                        "setgroups",
                                        "capset",
                                        "chmod",
                                        "fchmod",
                                        "fchmodat",
                                        "chown",
                                        "fchown",
                                        "lchown",
                                        "fchownat",
                                        "mkdir",
                                        "mkdirat",
                                        "rmdir",
                                        "mknod",
                                        "mknodat",
                                        "symlink",
                                        "symlinkat",
                                        "settimeofday",
                                        "clock_settime",
                                        "adjtimex",
                                        "reboot",
                                        "swapon",
                                        "swapoff",
                                        "sethostname",
                                        "setdomainname",
                                        "personality",
                                        "syslog",
                                        "acct",
                                        "quotactl",
                                        "iopl",
                                        "ioperm",
                                        "modify_ldt"};

/* For processes that fork and whose children may drop privileges, and for what a sanitizer's
 * runtime does at exit. */
static const char *const of_forks[] = {"fork", "vfork", "wait4", "waitid", "waitpid", "capset"};
static const char *const of_sanitizers[] = {
    "ptrace",           "fork",      "clone",      "wait4", "waitpid", "waitid",
    "process_vm_readv", "setitimer", "personality"};

static int add_names(scmp_filter_ctx c, uint32_t action, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int nr = seccomp_syscall_resolve_name(names[i]);
        int rc = nr == __NR_SCMP_ERROR ? 0 : seccomp_rule_add(c, action, nr, 0);

        if (rc < 0 && rc != -EDOM && rc != -EEXIST)
            return rc;
    }
    return 0;
}
#define ADD_NAMES(c, action, names) add_names(c, action, names, sizeof(names) / sizeof *(names))

/* Allows a call if these comparisons hold. A call that the architecture lacks is not an error. */
static int add_if(scmp_filter_ctx c, const char *name, unsigned n, const struct scmp_arg_cmp *cmp)
{
    int nr = seccomp_syscall_resolve_name(name);
    int rc = nr == __NR_SCMP_ERROR ? 0 : seccomp_rule_add_array(c, SCMP_ACT_ALLOW, nr, n, cmp);

    return rc == -EDOM || rc == -EEXIST ? 0 : rc;
}

static int add_value(scmp_filter_ctx c, const char *name, unsigned arg, uint64_t value)
{
    return add_if(c, name, 1, &SCMP_CMP64(arg, SCMP_CMP_EQ, value, 0));
}

static int add_sockets(scmp_filter_ctx c)
{
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
    const struct scmp_arg_cmp routes[] = {SCMP_CMP64(0, SCMP_CMP_EQ, AF_NETLINK, 0),
                                          SCMP_CMP64(2, SCMP_CMP_EQ, NETLINK_ROUTE, 0)};
    int rc = add_value(c, "socketpair", 0, AF_UNIX);

    for (unsigned i = 0; rc == 0 && i < sizeof families / sizeof *families; i++)
        rc = add_value(c, "socket", 0, (uint64_t)families[i]);
    return rc < 0 ? rc : add_if(c, "socket", 2, routes);
}

/* No page is both writable and executable. */
static int add_memory(scmp_filter_ctx c)
{
    static const char *const names[] = {"mmap", "mmap2", "mprotect"};
    const uint64_t both = PROT_WRITE | PROT_EXEC, may[] = {0, PROT_WRITE, PROT_EXEC};

#if defined(__s390__)
    int one = add_if(c, "mmap", 0, NULL); /* its arguments are in memory */
    if (one < 0)
        return one;
#endif
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        for (unsigned i = 0; i < sizeof may / sizeof *may; i++) {
            int rc = add_if(c, names[n], 1, &SCMP_CMP64(2, SCMP_CMP_MASKED_EQ, both, may[i]));

            if (rc < 0)
                return rc;
        }
    return 0;
}

/* Allows threads, and processes if the program forks, but no new namespaces. clone3 hides its flags
 * in memory; without it the C library falls back to clone. */
static int add_clone(scmp_filter_ctx c, bool forks)
{
#if defined(__s390__)
    const unsigned flags = 1;
#else
    const unsigned flags = 0;
#endif
    const uint64_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

    if (forks)
        return add_if(c, "clone", 1, &SCMP_CMP64(flags, SCMP_CMP_MASKED_EQ, namespaces, 0));
    return add_if(c, "clone", 1,
                  &SCMP_CMP64(flags, SCMP_CMP_MASKED_EQ, namespaces | CLONE_THREAD, CLONE_THREAD));
}

static int add_signals(scmp_filter_ctx c, const struct sandbox *s)
{
    uint64_t self = (uint64_t)getpid();
    int rc = s->forks ? 0 : add_value(c, "tgkill", 0, self); /* abort(3) */

    if (rc == 0 && s->forks)
        rc = add_if(c, "tgkill", 0, NULL);
    if (rc == 0 && (s->signals || s->forks))
        rc = add_value(c, "kill", 1, 0);
    if (rc == 0 && (s->signals || s->forks))
        rc = add_value(c, "kill", 1, SIGTERM);
    return rc == 0 && s->forks ? add_value(c, "kill", 1, SIGKILL) : rc;
}

/* Allows queries of descriptors, terminals and interfaces; nothing that injects terminal input. */
static int add_ioctl(scmp_filter_ctx c)
{
    static const unsigned long requests[] = {TCGETS,        TIOCGWINSZ,   FIONREAD,    FIONBIO,
                                             FIOCLEX,       SIOCOUTQ,     SIOCGIFADDR, SIOCGIFINDEX,
                                             SIOCGIFNAME,   SIOCGIFFLAGS, SIOCGIFMTU,  SIOCGIFCONF,
                                             SIOCGIFNETMASK};
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < sizeof requests / sizeof *requests; i++)
        rc = add_if(c, "ioctl", 1, &SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, UINT32_MAX, requests[i]));
    return rc;
}

static int add_prctl(scmp_filter_ctx c)
{
    static const int options[] = {PR_SET_NAME,     PR_GET_NAME,         PR_SET_PDEATHSIG,
                                  PR_GET_DUMPABLE, PR_SET_DUMPABLE,     PR_SET_VMA,
                                  PR_GET_SECCOMP,  PR_GET_NO_NEW_PRIVS, PR_SET_NO_NEW_PRIVS};
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < sizeof options / sizeof *options; i++)
        rc = add_value(c, "prctl", 0, (uint64_t)options[i]);
    return rc;
}

static int add_directories(scmp_filter_ctx c, const struct sandbox *s)
{
    unsigned may = 0;

    for (size_t i = 0; i < s->npaths; i++)
        may |= s->paths[i].may;
    return (may & SANDBOX_DIRECTORIES) != 0 ? add_if(c, "mkdirat", 0, NULL) : 0;
}

static int add_rules(scmp_filter_ctx c, const struct sandbox *s)
{
    int rc = ADD_NAMES(c, SCMP_ACT_ALLOW, allowed);

    if (rc == 0 && SANITIZED)
        rc = ADD_NAMES(c, SCMP_ACT_ALLOW, of_sanitizers);
    if (rc == 0 && s->forks)
        rc = ADD_NAMES(c, SCMP_ACT_ALLOW, of_forks);
    if (rc == 0)
        rc = add_sockets(c);
    if (rc == 0)
        rc = add_memory(c);
    if (rc == 0)
        rc = add_clone(c, s->forks);
    if (rc == 0)
        rc = add_signals(c, s);
    if (rc == 0)
        rc = add_ioctl(c);
    if (rc == 0)
        rc = add_prctl(c);
    if (rc == 0)
        rc = add_directories(c, s);
    /* Last, so that rules for calls that the program needs take precedence. */
    return rc == 0 ? ADD_NAMES(c, SCMP_ACT_ERRNO(EPERM), forbidden) : rc;
}

bool sandbox_has_seccomp(void)
{
    uint32_t action = SECCOMP_RET_ERRNO;

    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

int sandbox_enter_seccomp(const struct sandbox *s, char *why, size_t why_bytes)
{
    scmp_filter_ctx c = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    int rc = !c ? -ENOMEM : add_rules(c, s);

    if (rc == 0) {
        /* Hints that an older libseccomp lacks: a tree of comparisons instead of a list, and none
         * of the mitigations that kernels before 5.16 couple with seccomp. */
        seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2);
        seccomp_attr_set(c, SCMP_FLTATR_CTL_SSB, 1);
        rc = seccomp_load(c);
    }
    if (c)
        seccomp_release(c);
    if (rc < 0)
        snprintf(why, why_bytes, "seccomp: %s", strerror(-rc));
    return rc < 0 ? -1 : 0;
}
