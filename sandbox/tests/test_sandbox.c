/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandbox holds: each attempt runs in its own process that has entered the sandbox like the
 * programs do, and must be refused; what the programs need must still work. Runs as root, which
 * nothing else restrains.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sandbox.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* a sanitizer's runtime needs some of what is refused */
#else
enum { SANITIZED = 0 };
#endif

static char dir[] = "/tmp/sandboxXXXXXX", own[64], foreign[64];
static struct sandbox_state has;
static uint16_t listening; /* a TCP port of 127.0.0.1 where this program listens */

#define REFUSED(call, error)                                                                       \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long got_ = (long)(call);                                                                  \
        if (got_ != -1 || errno != (error)) {                                                      \
            fprintf(stderr, "line %d: %s gave %ld, %s\n", __LINE__, #call, got_, strerror(errno)); \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define WORKS(condition)                                                                 \
    do {                                                                                 \
        errno = 0;                                                                       \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

static unsigned own_may = SANDBOX_FILES;

/* Runs `attempt` in a process that has entered the sandbox. */
static void inside(void (*attempt)(void), bool forks, bool signals)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct sandbox s;
        char why[128];
        sandbox_init(&s, false);
        sandbox_path(&s, own, own_may);
        sandbox_path(&s, "/not/there", SANDBOX_FILES);
        sandbox_bind(&s, 0);
        sandbox_connect(&s, 53);
        s.forks = forks;
        s.signals = signals;
        if (sandbox_enter(&s, why, sizeof why) < 0) {
            fprintf(stderr, "%s\n", why);
            _exit(1);
        }
        attempt();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void needs_landlock(int abi)
{
    if (has.landlock >= abi)
        return;
    printf("SKIPPED: this kernel has Landlock ABI %d, the test needs %d\n", has.landlock, abi);
    skip();
}

static void needs_seccomp(void)
{
    if (has.seccomp)
        return;
    printf("SKIPPED: this kernel has no seccomp\n");
    skip();
}

static int tcp(void)
{
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static struct sockaddr_in local(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* ------------------------------------------------------------------ refused */

static void files(void)
{
    char path[128];

    REFUSED(open("/etc/passwd", O_WRONLY), EACCES);
    REFUSED(open("/etc/passwd", O_RDONLY), EACCES);
    REFUSED(open("/etc", O_RDONLY | O_DIRECTORY), EACCES);
    REFUSED(open(foreign, O_RDONLY | O_DIRECTORY), EACCES);
    snprintf(path, sizeof path, "%s/f", foreign);
    REFUSED(open(path, O_RDWR | O_CREAT, 0600), EACCES);
    REFUSED(unlink(path), EACCES);
    REFUSED(truncate(path, 0), has.seccomp ? ENOSYS : EACCES);
    REFUSED(open("/usr/never", O_WRONLY | O_CREAT, 0600), EACCES);
    REFUSED(open("/proc/self/mem", O_WRONLY), EACCES);
    REFUSED(open("/", O_RDONLY | O_DIRECTORY), EACCES);
    /* By detours */
    snprintf(path, sizeof path, "%s/../foreign/f", own);
    REFUSED(open(path, O_RDONLY), EACCES);
    snprintf(path, sizeof path, "%s/link", own); /* a link to the foreign file */
    REFUSED(open(path, O_RDONLY), EACCES);
    char inner[128];
    snprintf(inner, sizeof inner, "%s/f", foreign);
    snprintf(path, sizeof path, "%s/stolen", own);
    REFUSED(link(inner, path), EXDEV);
    REFUSED(rename(inner, path), EACCES);
}

static void calls(void)
{
    char *argv[] = {(char *)(uintptr_t) "/bin/true", NULL};

    REFUSED(execve(argv[0], argv, argv + 1), EPERM);
    if (!SANITIZED) {
        REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL), EPERM);
        REFUSED(fork(), ENOSYS);
    }
    REFUSED(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL), EPERM);
    REFUSED(unshare(CLONE_NEWUSER), EPERM);
    REFUSED(chmod(own, 0777), EPERM);
    REFUSED(setuid(0), EPERM);
    REFUSED(chroot(own), EPERM);
    REFUSED(kill(getppid(), 0), ENOSYS);
    REFUSED(kill(getpid(), SIGKILL), ENOSYS);
    REFUSED(socket(AF_PACKET, SOCK_RAW, 0), ENOSYS);
    REFUSED(socket(AF_NETLINK, SOCK_RAW, 12), ENOSYS); /* NETLINK_NETFILTER */
    REFUSED(socket(AF_ALG, SOCK_SEQPACKET, 0), ENOSYS);
    REFUSED(socket(AF_VSOCK, SOCK_STREAM, 0), ENOSYS);
    REFUSED(socket(AF_BLUETOOTH, SOCK_RAW, 0), ENOSYS);
    REFUSED(
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        ENOSYS);
    REFUSED(ioctl(STDIN_FILENO, TIOCSTI, "x"), ENOSYS);
    REFUSED(prctl(PR_SET_SECCOMP, 0), ENOSYS);
}

static void ports(void)
{
    struct sockaddr_in at = local(listening), any = local(0), other = local(1);

    REFUSED(connect(tcp(), (struct sockaddr *)&at, sizeof at), EACCES);
    REFUSED(bind(tcp(), (struct sockaddr *)&other, sizeof other), EACCES);
    WORKS(bind(tcp(), (struct sockaddr *)&any, sizeof any) == 0);
    at.sin_port = htons(53);
    WORKS(connect(tcp(), (struct sockaddr *)&at, sizeof at) == 0 || errno != EACCES);
}

static void others(void)
{
    WORKS(kill(getppid(), 0) < 0 && errno == EPERM); /* outside its domain */
}

static void abstract_sockets(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "%s", dir);
    REFUSED(connect(fd, (struct sockaddr *)&at, sizeof at), EPERM);
}

/* ------------------------------------------------------------------ still possible */

static void *thread(void *arg)
{
    int fd = open("/etc/passwd", O_WRONLY);

    *(int *)arg = fd < 0 ? errno : 0;
    return NULL;
}

static void work(void)
{
    char path[128], after[128];
    struct addrinfo *found;
    struct stat st;
    pthread_t t;
    int of_thread = -1;

    snprintf(path, sizeof path, "%s/a", own);
    snprintf(after, sizeof after, "%s/b", own);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    WORKS(fd >= 0);
    WORKS(ftruncate(fd, 8192) == 0);
    WORKS(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
    WORKS(rename(path, after) == 0);
    WORKS(stat("/etc/passwd", &st) == 0); /* its existence is no secret */
    WORKS(unlink(after) == 0);
    WORKS(open("/etc/hosts", O_RDONLY) >= 0 || errno == ENOENT);
    WORKS(open("/dev/null", O_WRONLY) >= 0);
    WORKS(getaddrinfo("localhost", "80", NULL, &found) == 0);
    freeaddrinfo(found);
    struct sockaddr_in here = local(80);
    WORKS(getnameinfo((struct sockaddr *)&here, sizeof here, path, sizeof path, NULL, 0, 0) == 0);
    WORKS(if_nametoindex("lo") != 0 || errno == ENODEV);
    WORKS(pthread_create(&t, NULL, thread, &of_thread) == 0);
    WORKS(pthread_join(t, NULL) == 0);
    WORKS(of_thread == (has.landlock > 0 ? EACCES : 0));
    char *big = malloc(64 << 20);
    WORKS(big);
    memset(big, 1, 64 << 20);
    free(big);
}

static void status(void)
{
    char line[256];
    int seccomp = -1, no_new = -1;
    FILE *f = fopen("/proc/self/status", "re");

    WORKS(f);
    while (fgets(line, sizeof line, f)) {
        sscanf(line, "Seccomp: %d", &seccomp);
        sscanf(line, "NoNewPrivs: %d", &no_new);
    }
    WORKS(seccomp == (has.seccomp ? 2 : 0));
    WORKS(no_new == (has.seccomp || has.landlock > 0));
}

static void no_directory(void)
{
    char path[128];

    snprintf(path, sizeof path, "%s/made", own);
    REFUSED(mkdirat(AT_FDCWD, path, 0700), has.seccomp ? EPERM : EACCES);
}

static void directory(void)
{
    char path[128], file[160];

    snprintf(path, sizeof path, "%s/made", own);
    snprintf(file, sizeof file, "%s/f", path);
    WORKS(mkdirat(AT_FDCWD, path, 0700) == 0);
    WORKS(open(file, O_RDWR | O_CREAT | O_EXCL, 0600) >= 0);
    WORKS(unlink(file) == 0);
    snprintf(path, sizeof path, "%s/made", foreign);
    REFUSED(mkdirat(AT_FDCWD, path, 0700), EACCES);
}

static void forks(void)
{
    int code;
    pid_t pid = fork();

    if (pid == 0)
        _exit(7);
    WORKS(pid > 0 && waitpid(pid, &code, 0) == pid && WIFEXITED(code) && WEXITSTATUS(code) == 7);
    char *argv[] = {(char *)(uintptr_t) "/bin/true", NULL};
    REFUSED(execve(argv[0], argv, argv + 1), EPERM);
    REFUSED(unshare(CLONE_NEWUSER), EPERM);
}

static void signals(void)
{
    WORKS(kill(getppid(), 0) == 0);
    REFUSED(kill(getppid(), SIGKILL), ENOSYS);
}

/* ------------------------------------------------------------------ */

static void test_files(void **state)
{
    (void)state;
    needs_landlock(3);
    inside(files, false, false);
}

static void test_calls(void **state)
{
    (void)state;
    needs_seccomp();
    inside(calls, false, false);
}

static void test_ports(void **state)
{
    (void)state;
    needs_landlock(4);
    inside(ports, false, false);
}

static void test_scope(void **state)
{
    (void)state;
    needs_landlock(6);
    inside(others, true, false);
    inside(abstract_sockets, false, false);
}

static void test_work_goes_on(void **state)
{
    (void)state;
    inside(work, false, false);
    inside(work, true, true);
}

static void test_status(void **state)
{
    (void)state;
    inside(status, false, false);
}

static void test_forks(void **state)
{
    (void)state;
    needs_seccomp();
    inside(forks, true, false);
}

static void test_signals(void **state)
{
    (void)state;
    needs_seccomp();
    inside(signals, false, true);
}

static void test_directories(void **state)
{
    (void)state;
    char path[128];

    needs_landlock(1);
    inside(no_directory, false, false);
    own_may = SANDBOX_FILES | SANDBOX_DIRECTORIES;
    inside(directory, false, false);
    own_may = SANDBOX_FILES;
    snprintf(path, sizeof path, "%s/made", own);
    assert_int_equal(rmdir(path), 0);
}

static void test_too_much(void **state)
{
    (void)state;
    struct sandbox s;
    char why[128];
    sandbox_init(&s, true);
    for (int i = 0; i <= SANDBOX_PATHS_MAX; i++)
        sandbox_path(&s, "/", SANDBOX_READ);
    assert_int_equal(sandbox_enter(&s, why, sizeof why), -1);
    assert_string_equal(why, "more than 80 paths or 68 ports");
}

static void test_text(void **state)
{
    (void)state;
    char text[SANDBOX_TEXT];
    struct sandbox_state all = {true, 7}, none = {0};
    assert_string_equal(sandbox_text(&all, text), "seccomp, Landlock (ABI 7)");
    assert_string_equal(sandbox_text(&none, text),
                        "no seccomp in this kernel, no Landlock in this kernel");
}

static int setup(void **state)
{
    (void)state;
    char path[128], inner[128];
    struct sockaddr_in at = local(0);
    socklen_t n = sizeof at;
    struct sockaddr_un named = {.sun_family = AF_UNIX};
    int fd = tcp(), un = socket(AF_UNIX, SOCK_STREAM, 0);

    if (!mkdtemp(dir))
        return -1;
    snprintf(own, sizeof own, "%s/own", dir);
    snprintf(foreign, sizeof foreign, "%s/foreign", dir);
    snprintf(path, sizeof path, "%s/link", own);
    snprintf(inner, sizeof inner, "%s/f", foreign);
    snprintf(named.sun_path + 1, sizeof named.sun_path - 1, "%s", dir);
    if (mkdir(own, 0700) < 0 || mkdir(foreign, 0700) < 0 || symlink(inner, path) < 0 ||
        close(open(inner, O_WRONLY | O_CREAT, 0600)) < 0 ||
        bind(fd, (struct sockaddr *)&at, n) < 0 || listen(fd, 5) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) < 0 ||
        bind(un, (struct sockaddr *)&named, sizeof named) < 0 || listen(un, 5) < 0)
        return -1;
    listening = ntohs(at.sin_port);
    has = sandbox_probe();
    char text[SANDBOX_TEXT];
    printf("# %s\n", sandbox_text(&has, text));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char path[128];

    snprintf(path, sizeof path, "%s/link", own);
    unlink(path);
    snprintf(path, sizeof path, "%s/f", foreign);
    unlink(path);
    return rmdir(own) < 0 || rmdir(foreign) < 0 || rmdir(dir) < 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_ports),        cmocka_unit_test(test_scope),
        cmocka_unit_test(test_work_goes_on), cmocka_unit_test(test_status),
        cmocka_unit_test(test_forks),        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_directories),  cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_text),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
