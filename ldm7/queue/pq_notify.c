/* SPDX-License-Identifier: Apache-2.0
 *
 * Wakes processes on insertion: a futex word in the header; a small thread per listening handle
 * turns it into an eventfd that an event loop can wait for.
 *
 * A waiting process sets bit 0 of the word; the next announcement clears it and wakes all. So
 * listeners are not counted, a killed one leaves nothing behind, and an announcement without
 * listeners costs no system call.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "own_pid.h"
#include "pq_impl.h"

enum { PROCESS_WAITS = 1 };

void pq_wake(struct pq *q)
{
    syscall(SYS_futex, &q->h->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* If the process is killed between the two steps, the next one that takes the lock does the
 * second. */
void pq_announce(struct pq *q)
{
    uint32_t word = atomic_load(&q->h->wake);
    while (!atomic_compare_exchange_weak(&q->h->wake, &word, (word & ~1u) + 2))
        ;
    if (word & PROCESS_WAITS)
        pq_wake(q);
}

static void *listen_loop(void *arg)
{
    struct pq *q = arg;
    pthread_setname_np(pthread_self(), PQ_LISTENER_NAME);
    uint64_t seen = 0; /* also announces once what existed before pq_notify_fd() */
    uint32_t asks_seen = atomic_load(&q->h->asks);
    while (!atomic_load(&q->listener_stops)) {
        uint32_t word = atomic_load(&q->h->wake);
        uint64_t last = atomic_load(&q->h->last_seq);
        uint32_t asks = atomic_load(&q->h->asks);
        if (last != seen || asks != asks_seen) {
            uint64_t one = 1;
            seen = last;
            asks_seen = asks;
            /* EAGAIN: 2^64 - 2 unread insertions; still readable. */
            if (write(q->event_fd, &one, sizeof one) < 0 && errno != EAGAIN)
                break;
        }
        if (atomic_load(&q->listener_stops))
            break;
        if (!(word & PROCESS_WAITS) &&
            !atomic_compare_exchange_strong(&q->h->wake, &word, word | PROCESS_WAITS))
            continue;
        word |= PROCESS_WAITS;
        syscall(SYS_futex, &q->h->wake, FUTEX_WAIT, word, NULL, NULL, 0);
    }
    return NULL;
}

int pq_notify_fd(struct pq *q)
{
    if (q->pid != own_pid()) {
        errno = EINVAL;
        return -1;
    }
    if (q->event_fd >= 0)
        return q->event_fd;
    q->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->event_fd < 0)
        return -1;
    /* The process's signals are meant for its own threads. */
    sigset_t all;
    sigfillset(&all);
    atomic_store(&q->listener_stops, false);
    sigset_t old;
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(&q->listener, NULL, listen_loop, q);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        close(q->event_fd);
        q->event_fd = -1;
        errno = e;
        return -1;
    }
    return q->event_fd;
}

void pq_notify_clear(struct pq *q)
{
    uint64_t count;
    while (q->event_fd >= 0 && read(q->event_fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

void pq_notify_stop(struct pq *q)
{
    if (q->event_fd < 0)
        return;
    if (q->pid == own_pid()) {
        atomic_store(&q->listener_stops, true);
        /* The word changes, so a thread about to wait returns. Other listeners find no product. Bit
         * 0 stays, because this is not under the lock. */
        atomic_fetch_add(&q->h->wake, 2);
        pq_wake(q);
        pthread_join(q->listener, NULL);
    }
    close(q->event_fd);
    q->event_fd = -1;
}
