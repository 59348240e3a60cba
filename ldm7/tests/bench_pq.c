/* SPDX-License-Identifier: Apache-2.0
 *
 * Products per second through the queue: insertion alone, and with a reader in another process
 * that follows by pq_notify_fd and touches every byte. The queue is in the directory given
 * (default /dev/shm if there, else /tmp), smaller than what goes through it: eviction included.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pq.h"

static char path[4096];

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Follows to product number `last`; how many it saw (the queue does not wait for it). */
static _Noreturn void follow(unsigned last, int report)
{
    struct pq *q;
    uint64_t after = 0;
    unsigned seen = 0;
    volatile uint64_t sum = 0;
    if (pq_open(path, false, &q))
        _exit(1);
    struct pollfd p = {.fd = pq_notify_fd(q), .events = POLLIN};
    while (after < last) {
        struct pq_view v;
        poll(&p, 1, 1000);
        pq_notify_clear(q);
        while (pq_next(q, after, &v) == PQ_OK) {
            for (uint32_t i = 0; i < v.info.size; i += 64)
                sum += v.data[i];
            after = v.seq;
            seen++;
            pq_release(q, &v);
        }
    }
    (void)sum;
    _exit(write(report, &seen, sizeof seen) != sizeof seen);
}

static int measure(uint32_t size, unsigned count, bool reader)
{
    struct pq *q;
    int report[2];
    pid_t pid = -1;
    if (pq_create(path, 64 << 20, 35000, true) || pq_open(path, true, &q) || pipe(report)) {
        perror(path);
        return 1;
    }
    uint8_t *data = malloc(size);
    memset(data, 'x', size);
    if (reader && (pid = fork()) == 0)
        follow(count, report[1]);
    struct pq_info info = {.size = size};
    double began = now_s();
    for (unsigned n = 1; n <= count;) {
        memcpy(info.signature.bytes, &n, sizeof n);
        n += pq_insert(q, &info, data) == PQ_OK;
    }
    double took = now_s() - began;
    printf("%7u B %s: %9.0f products/s, %7.1f MB/s, %6.2f us each", size, reader ? "with a reader" : "no reader    ",
           count / took, count / took * size / 1e6, took / count * 1e6);
    if (reader) {
        unsigned seen = 0;
        if (read(report[0], &seen, sizeof seen) < 0)
            perror("read");
        waitpid(pid, NULL, 0);
        printf(", reader saw %u of %u", seen, count);
    }
    putchar('\n');
    close(report[0]);
    close(report[1]);
    free(data);
    pq_close(q);
    return 0;
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, sizeof path, "%s/bench-pq-%ld", dir, (long)getpid());
    int e = measure(1000, 100000, false) || measure(1000, 100000, true) || measure(100000, 5000, false) ||
            measure(100000, 5000, true);
    unlink(path);
    return e;
}
