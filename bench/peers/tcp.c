/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-tcp: sends files by one TCP connection to each receiver, all at once (sendfile).
 *
 *   bench-tcp send listen=IP:PORT receivers=N        paths on standard input, one per line
 *   bench-tcp recv server=IP:PORT directory=DIR
 *
 * The sender says "N receivers connected" on stderr and then reads paths. Each connection sends the
 * files in turn at its own pace, and closes when standard input has ended. On the wire a file is:
 * name length (u32), size (u64), both big-endian, name, bytes.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options.h"

#define NAME_MAX_BYTES 255
#define PATH_ROOM 512

struct head {
    uint32_t name_len;
    uint64_t size;
} __attribute__((packed));

static struct sockaddr_in address;
static const char *directory = ".";
static uint64_t receivers = 1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static char (*paths)[PATH_ROOM];
static size_t npaths, capacity;
static bool complete;

static void put(int fd, const void *data, size_t len)
{
    for (const char *p = data; len;) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_MORE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            die("send: %s", strerror(errno));
        p += n;
        len -= (size_t)n;
    }
}

static void send_file(int fd, const char *path)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    int in = open(path, O_RDONLY | O_CLOEXEC), off = 0, on = 1;
    struct stat st;

    if (in < 0 || fstat(in, &st) < 0)
        die("'%s': %s", path, strerror(errno));
    struct head h = {htonl((uint32_t)strlen(name)), htobe64((uint64_t)st.st_size)};
    put(fd, &h, sizeof h);
    put(fd, name, strlen(name));
    for (off_t at = 0; at < st.st_size;)
        if (sendfile(fd, in, &at, (size_t)(st.st_size - at)) < 0 && errno != EINTR)
            die("send: %s", strerror(errno));
    close(in);
    /* Send what MSG_MORE held back. */
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
}

static void *serve(void *arg)
{
    int fd = *(int *)arg;

    for (size_t i = 0;; i++) {
        pthread_mutex_lock(&lock);
        while (i >= npaths && !complete)
            pthread_cond_wait(&more, &lock);
        char path[PATH_ROOM] = "";
        if (i < npaths)
            memcpy(path, paths[i], PATH_ROOM);
        pthread_mutex_unlock(&lock);
        if (!*path)
            break;
        send_file(fd, path);
    }
    close(fd);
    return NULL;
}

static void add_path(const char *path)
{
    pthread_mutex_lock(&lock);
    if (npaths == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        paths = reallocarray(paths, capacity, sizeof *paths);
    }
    if (!paths)
        die("out of memory");
    if (strlen(path) >= PATH_ROOM)
        die_usage("found '%s'; valid: paths below %d bytes", path, PATH_ROOM);
    memcpy(paths[npaths++], path, strlen(path) + 1);
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&lock);
}

static int send_main(void)
{
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t *threads = calloc(receivers, sizeof *threads);
    int *fds = calloc(receivers, sizeof *fds);
    char *line = NULL;
    size_t room = 0;

    if (!threads || !fds)
        die("out of memory");
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listener, 512) < 0)
        die("listen: %s", strerror(errno));
    for (uint64_t i = 0; i < receivers; i++) {
        fds[i] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fds[i] < 0 || pthread_create(&threads[i], NULL, serve, &fds[i]))
            die("accept: %s", strerror(errno));
    }
    fprintf(stderr, "bench-tcp: %llu receivers connected\n", (unsigned long long)receivers);
    while (getline(&line, &room, stdin) > 0) {
        line[strcspn(line, "\n")] = 0;
        add_path(line);
    }
    pthread_mutex_lock(&lock);
    complete = true;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&lock);
    for (uint64_t i = 0; i < receivers; i++)
        pthread_join(threads[i], NULL);
    free(paths);
    free(line);
    free(fds);
    free(threads);
    close(listener);
    return 0;
}

/* Returns false if the connection ended before the first byte. */
static bool get(int fd, void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = recv(fd, (char *)data + done, len - done, MSG_WAITALL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            die("recv: %s", strerror(errno));
        if (n == 0 && done == 0)
            return false;
        if (n == 0)
            die("the connection ended within a file");
        done += (size_t)n;
    }
    return true;
}

static void receive_file(int fd, const struct head *h, char *buffer, size_t room)
{
    uint32_t name_len = ntohl(h->name_len);
    uint64_t left = be64toh(h->size);

    char name[NAME_MAX_BYTES + 1];
    if (name_len == 0 || name_len > NAME_MAX_BYTES || !get(fd, name, name_len))
        die("found a name of %u bytes; valid: 1 to %d", name_len, NAME_MAX_BYTES);
    name[name_len] = 0;
    if (strchr(name, '/') || name[0] == '.')
        die("found the name '%s'; valid: a plain file name", name);
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s/.%s", directory, name);
    int out = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0)
        die("'%s': %s", temporary, strerror(errno));
    while (left) {
        ssize_t n = recv(fd, buffer, left < room ? left : room, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || write(out, buffer, (size_t)n) != n)
            die("'%s': %s", temporary, n == 0 ? "the connection ended" : strerror(errno));
        left -= (uint64_t)n;
    }
    close(out);
    if (rename(temporary, path) < 0)
        die("'%s': %s", path, strerror(errno));
}

static int recv_main(void)
{
    enum { ROOM = 1 << 18 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *buffer = malloc(ROOM);

    if (!buffer || fd < 0)
        die("out of memory or sockets");
    for (int tries = 0; connect(fd, (struct sockaddr *)&address, sizeof address) < 0; tries++) {
        if (tries == 200)
            die("connect: %s", strerror(errno));
        usleep(50000);
    }
    struct head h;
    while (get(fd, &h, sizeof h))
        receive_file(fd, &h, buffer, ROOM);
    close(fd);
    free(buffer);
    return 0;
}

int main(int argc, char **argv)
{
    const struct option_word words[] = {{"listen", .endpoint = &address},
                                        {"server", .endpoint = &address},
                                        {"directory", .text = &directory},
                                        {"receivers", .number = &receivers},
                                        {0}};

    program = "bench-tcp";
    if (argc < 2 || (strcmp(argv[1], "send") != 0 && strcmp(argv[1], "recv") != 0))
        die_usage("found '%s'; valid: send, recv", argc < 2 ? "" : argv[1]);
    read_options(argc, argv, 2, words);
    if (!address.sin_port || !receivers)
        die_usage("listen=IP:PORT or server=IP:PORT is needed");
    return strcmp(argv[1], "recv") == 0 ? recv_main() : send_main();
}
