/* SPDX-License-Identifier: Apache-2.0
 *
 * Many processes open a large queue at once, as when all peers of a server return after an outage:
 * test_pq_open [SLOTS [disk] [timed]]. None of them may read all slots or touch more than a few
 * pages, whether another process has the queue open or all come and go. With `timed`, which is for
 * an idle machine, the last must be finished within a second, and no insertion may wait for 50 ms.
 * The queue lies in memory, or with `disk` on the disk.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "queue/pq_impl.h"

enum { PROCESSES = 100, DEFAULT_SLOTS = 100000, STORMS = 5, FAULTS_MAX = 60 };

static struct shared {
    _Atomic bool go;
    _Atomic uint32_t ready, failed;
    double answered_s[PROCESSES];
    long faults[PROCESSES];
} * shared;

static char path[64];
static bool timed;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static enum pq_status put(struct pq *q, uint64_t n)
{
    struct pq_info info = {.size = 8, .seqno = (uint32_t)n};
    memcpy(info.signature.bytes, &n, sizeof n);
    return pq_insert(q, &info, &n);
}

static long page_faults(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_minflt + use.ru_majflt;
}

static _Noreturn void open_and_answer(unsigned i)
{
    struct pq *q;
    struct pq_view v;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    atomic_fetch_add(&shared->ready, 1);
    while (!atomic_load(&shared->go))
        usleep(200);
    long faults = page_faults();
    if (pq_open(path, false, &q) || pq_next(q, 0, &v))
        atomic_fetch_add(&shared->failed, 1);
    shared->answered_s[i] = now_s();
    pq_release(q, &v);
    pq_close(q);
    shared->faults[i] = page_faults() - faults;
    _exit(0);
}

/* Inserts until all have come. Returns the longest time that one insertion, with its opening,
 * took. */
static double insert_meanwhile(uint64_t *n, unsigned *count)
{
    double longest = 0;
    for (unsigned gone = 0; gone < PROCESSES; (*count)++) {
        double began = now_s();
        struct pq *q;
        if (pq_open(path, true, &q) || put(q, (*n)++))
            atomic_fetch_add(&shared->failed, 1);
        pq_close(q);
        double took = now_s() - began;
        longest = took > longest ? took : longest;
        usleep(1000);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            gone++;
    }
    return longest;
}

static bool storm(const char *when, uint64_t *n, double look_s)
{
    unsigned count = 0;
    atomic_store(&shared->go, false);
    atomic_store(&shared->ready, 0);
    fflush(stdout);
    for (unsigned i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        if (pid == 0)
            open_and_answer(i);
        if (pid < 0)
            exit(2);
    }
    while (atomic_load(&shared->ready) < PROCESSES)
        usleep(1000);
    double began = now_s(), first_s = 1e9, last_s = 0;
    long faults = 0;
    atomic_store(&shared->go, true);
    double longest_s = insert_meanwhile(n, &count);
    for (unsigned i = 0; i < PROCESSES; i++) {
        double took = shared->answered_s[i] - began;
        first_s = took < first_s ? took : first_s;
        last_s = took > last_s ? took : last_s;
        faults = shared->faults[i] > faults ? shared->faults[i] : faults;
    }
    printf("%s: first answer after %.1f ms, last %.1f ms; of %u insertions meanwhile the longest "
           "%.1f ms; at most %ld page faults; a look through all slots takes %.1f ms\n",
           when, first_s * 1e3, last_s * 1e3, count, longest_s * 1e3, faults, look_s * 1e3);
    return faults <= FAULTS_MAX && (!timed || (last_s < 1 && longest_s < 0.05));
}

int main(int argc, char **argv)
{
    uint32_t slots = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : DEFAULT_SLOTS;
    bool disk = access("/dev/shm", W_OK) != 0;
    for (int i = 2; i < argc; i++) {
        disk |= strcmp(argv[i], "disk") == 0;
        timed |= strcmp(argv[i], "timed") == 0;
    }
    snprintf(path, sizeof path, "%s/test-pq-open-%ld", disk ? "/var/tmp" : "/dev/shm",
             (long)getpid());
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct pq *q;
    if (shared == MAP_FAILED || pq_create(path, (uint64_t)slots * PQ_UNIT, slots, false) ||
        pq_open(path, true, &q)) {
        perror(path);
        return 2;
    }
    uint64_t n = 1;
    double began = now_s();
    while (n <= slots)
        if (put(q, n++))
            return 2;
    printf("%u slots, full after %.1f s\n", slots, now_s() - began);
    began = now_s();
    bool good = pq_check(q) == PQ_OK;
    double look_s = now_s() - began;
    good &= storm("open elsewhere", &n, look_s);
    uint32_t looks = q->h->looks;
    pq_close(q);
    for (int i = 0; i < STORMS; i++)
        good &= storm("closed", &n, look_s);
    if (pq_open(path, true, &q) == PQ_OK) {
        looks = q->h->looks - looks;
        printf("looks through all slots: %u\n", looks);
        good &= looks == 0 && pq_check(q) == PQ_OK;
        pq_close(q);
    }
    unlink(path);
    good &= !atomic_load(&shared->failed);
    if (!good)
        printf("FAILED (%u calls)\n", atomic_load(&shared->failed));
    return !good;
}
