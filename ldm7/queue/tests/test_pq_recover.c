/* SPDX-License-Identifier: Apache-2.0
 *
 * kill -9 while a queue is opened and recovered: test_pq_recover [ROUNDS [SEED]].
 *
 * In each round the queue is left as after a reboot (no lock and no client is of this run), as
 * after the death of a process that held the lock and had half written the tables, or as after the
 * death of all processes. Then several processes open it at once and insert, and are killed at
 * random moments, mostly while one of them recovers the tables. In the end every product that
 * existed before the round is there, whole, and all room, slots and places are free again.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/splitmix.h"
#include "queue/pq_impl.h"

enum { DATA_BYTES = 1 << 20, SLOTS = 2000, KEPT = 200, OPENERS = 4, DEFAULT_ROUNDS = 60 };
enum mess { REBOOT, LOCK_HELD, ALL_KILLED, MESSES };

static struct shared {
    _Atomic uint64_t next_id, opened, committed;
} * shared;
static char path[64];
static unsigned failures;

static void fail(unsigned round, const char *what)
{
    failures++;
    printf("FAILED: round %u: %s\n", round, what);
}

static uint32_t size_of(uint64_t id)
{
    return 16 + (uint32_t)(splitmix_key(1, id) % 1000);
}

static enum pq_status put(struct pq *q, uint64_t id)
{
    uint8_t data[1100];
    struct pq_info info = {.size = size_of(id), .seqno = (uint32_t)id};
    memcpy(info.signature.bytes, &id, sizeof id);
    splitmix_fill(splitmix_key(2, id), 0, data, info.size);
    return pq_insert(q, &info, data);
}

static bool is_whole(const struct pq_view *v)
{
    uint8_t data[1100];
    uint64_t id;
    memcpy(&id, v->info.signature.bytes, sizeof id);
    if (v->info.size != size_of(id) || v->info.seqno != (uint32_t)id)
        return false;
    splitmix_fill(splitmix_key(2, id), 0, data, v->info.size);
    return memcmp(data, v->data, v->info.size) == 0;
}

static _Noreturn void open_and_insert(void)
{
    struct pq *q;
    struct pq_view v;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        if (pq_open(path, true, &q))
            _exit(1);
        atomic_fetch_add(&shared->opened, 1);
        if (pq_next(q, 0, &v) == PQ_OK && !is_whole(&v))
            _exit(3);
        if (put(q, atomic_fetch_add(&shared->next_id, 1)) == PQ_OK)
            atomic_fetch_add(&shared->committed, 1);
        pq_close(q); /* without releasing its pin */
    }
}

static void scribble(struct pq *q)
{
    memset(q->hash, 0x55, q->h->hash_cells * sizeof *q->hash);
    memset(q->order, 0x55, q->h->order_cells * sizeof *q->order);
    memset(q->nodes, 0x55, q->h->nodes * sizeof *q->nodes);
    q->h->first_node = q->h->cursor = q->h->oldest = q->h->newest = 7;
    q->h->products = q->h->used_slots = 1;
    for (uint32_t s = 0; s < q->h->slots; s++)
        q->slots[s].pins = q->slots[s].older = q->slots[s].newer = 99;
    for (uint32_t c = 0; c < PQ_CLIENTS; c++)
        q->clients[c].pins = q->clients[c].first_reserved = 3;
}

/* Leaves the queue by a process that is killed, with a pin and a reservation. */
static void leave(enum mess mess)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct pq *q;
        struct pq_view v;
        struct pq_reservation *r;
        void *region;
        if (pq_open(path, true, &q) || pq_next(q, 0, &v) || pq_reserve(q, NULL, 5000, &region, &r))
            _exit(1);
        if (mess == LOCK_HELD && pq_lock(q) == PQ_OK)
            scribble(q);
        if (mess == REBOOT) {
            pq_lock(q);
            /* Locks that seem to be held, and tables as they were. */
            memset(q->locks, 0x5a, PQ_RUN_LOCKS * sizeof *q->locks);
            for (uint32_t c = 0; c < PQ_CLIENTS; c++)
                memset(&q->clients[c].alive, 0x5a, sizeof q->clients[c].alive);
            atomic_store(&q->h->run, 12345);
            atomic_store(&q->h->claims, 12345);
            q->h->ready_run = 12345;
        }
        raise(SIGKILL);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
        fail(0, "cannot make a mess");
}

/* Counts products among the newest positions up to `before`: a killed writer leaves a position
 * unused. */
static unsigned count_newest(unsigned round, struct pq *q, uint64_t before)
{
    struct pq_view v;
    unsigned n = 0;
    for (uint64_t after = 0; pq_next(q, after, &v) == PQ_OK; after = v.seq, pq_release(q, &v)) {
        if (v.seq <= after || !is_whole(&v))
            fail(round, "a product is torn or out of order");
        n += v.seq <= before && v.seq + KEPT > before;
    }
    return n;
}

/* Requires that the newest products from before still exist. */
static void look(unsigned round, uint64_t before, unsigned expected)
{
    struct pq *q;
    struct pq_stats st;
    if (pq_open(path, true, &q)) {
        fail(round, "it cannot be opened");
        return;
    }
    if (pq_check(q) != PQ_OK)
        fail(round, "the tables do not agree");
    if (count_newest(round, q, before) != expected && pq_last_seq(q) - before < KEPT)
        fail(round, "products are lost");
    pq_get_stats(q, &st);
    if (st.reserved_slots || pq_clients(q, NULL, 0) != 1)
        fail(round, "slots or places are lost");
    pq_close(q);
}

static void run_round(unsigned round, uint64_t *rng)
{
    struct pq *q;
    pid_t pids[OPENERS];
    uint64_t before = 0;
    unsigned expected = 0;
    if (pq_open(path, true, &q) == PQ_OK) {
        before = pq_last_seq(q);
        expected = count_newest(round, q, before);
        if (!expected)
            fail(round, "there is nothing to lose");
        pq_close(q);
    } else {
        fail(round, "it cannot be opened before the round");
    }
    leave(round % MESSES);
    for (unsigned i = 0; i < OPENERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            open_and_insert();
    }
    for (unsigned i = 0; i < OPENERS; i++) {
        *rng = *rng * 6364136223846793005u + 1442695040888963407u;
        usleep((useconds_t)(*rng >> 40) %
               (*rng >> 62 ? 1500 : 200)); /* mostly: while it recovers */
        kill(pids[i], SIGKILL);
        int status;
        if (waitpid(pids[i], &status, 0) != pids[i] || !WIFSIGNALED(status))
            fail(round, "an opener was refused, or read a torn product");
    }
    look(round, before, expected);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : DEFAULT_ROUNDS;
    uint64_t rng = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)getpid();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(path, sizeof path, "%s/test-pq-recover-%ld",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    struct pq *q;
    if (shared == MAP_FAILED || pq_create(path, DATA_BYTES, SLOTS, false) ||
        pq_open(path, true, &q)) {
        perror(path);
        return 2;
    }
    printf("seed %llu\n", (unsigned long long)rng);
    fflush(stdout);
    while (atomic_load(&shared->next_id) < 2 * KEPT)
        put(q, atomic_fetch_add(&shared->next_id, 1));
    pq_close(q);
    alarm(100); /* in case a process hangs */
    for (unsigned round = 0; round < rounds && !failures; round++)
        run_round(round, &rng);
    unlink(path);
    printf("%u rounds, %u processes killed; %llu times opened, %llu products committed meanwhile\n",
           rounds, rounds * OPENERS, (unsigned long long)atomic_load(&shared->opened),
           (unsigned long long)atomic_load(&shared->committed));
    if (!atomic_load(&shared->opened)) {
        printf("FAILED: nothing happened\n");
        failures++;
    }
    return failures != 0;
}
