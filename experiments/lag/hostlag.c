// SPDX-License-Identifier: Apache-2.0
// Measures how late this kernel lets a program run, and what its clocks do meanwhile. The program
// sleeps until a time every INTERVAL_US by CLOCK_MONOTONIC. At SIGUSR1 it discards what it has
// measured and starts over. At SIGTERM it prints one JSON object:
//
//   interval_ns, samples, skipped   skipped: times that had passed when the program ran again
//   late_ns {p50, p99, max}         how long after its time it ran (quantiles: the bucket's
//                                   upper bound, at most a fifth too high)
//           max_at_s                when the maximum occurred (CLOCK_REALTIME)
//   histogram [[upper_ns, count]]   nonempty buckets, four per octave
//   clock {resolution_ns            of CLOCK_MONOTONIC, according to the kernel
//          look_ns                  smallest difference between two consecutive readings
//          elapsed_ns               by CLOCK_MONOTONIC
//          raw_elapsed_ns           by CLOCK_MONOTONIC_RAW, which is never corrected
//          shift_ns                 change of CLOCK_REALTIME - CLOCK_MONOTONIC from start to end
//          step_ns, step_at_s}      its largest change between two samples, and when
//                                   (CLOCK_REALTIME)
//   cpu_ns                          processor time used by all this
//
// It runs like the programs it represents: in its own session (so in its own scheduling group,
// where the kernel groups by session), not pinned, without priority. Only its timer has no slack,
// so that it measures the scheduler.
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define LEAST_SHIFT 8 // everything below 256 ns is one bucket
#define PER_OCTAVE 4
#define BUCKETS (PER_OCTAVE * (63 - LEAST_SHIFT) + 1)
#define LOOKS 64
#define PHASES 61
#define TRIES 3
#define LONG_LOOK_NS INT64_C(20000) // two readings this far apart: preempted in between

static volatile sig_atomic_t ended, forgets;

static void on_signal(int number)
{
    if (number == SIGUSR1)
        forgets = 1;
    else
        ended = 1;
}

static void die(const char *what)
{
    fprintf(stderr, "hostlag: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;

    if (clock_gettime(clock, &t) != 0)
        die("clock_gettime");
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static unsigned bucket_of(int64_t ns)
{
    if (ns < INT64_C(1) << LEAST_SHIFT)
        return 0;
    unsigned octave = 63U - (unsigned)__builtin_clzll((unsigned long long)ns);
    return 1 + (octave - LEAST_SHIFT) * PER_OCTAVE + (unsigned)(ns >> (octave - 2) & 3);
}

static int64_t upper_ns(unsigned bucket)
{
    if (bucket == 0)
        return INT64_C(1) << LEAST_SHIFT;
    unsigned octave = (bucket - 1) / PER_OCTAVE + LEAST_SHIFT;
    return (INT64_C(1) << octave) +
           ((INT64_C(1) << (octave - 2)) * ((bucket - 1) % PER_OCTAVE + 1));
}

static int64_t least_look_ns(void)
{
    int64_t least = NS_PER_S, before = clock_ns(CLOCK_MONOTONIC);

    for (int i = 0; i < LOOKS; i++) {
        int64_t now = clock_ns(CLOCK_MONOTONIC);

        if (now > before && now - before < least)
            least = now - before;
        before = now;
    }
    return least;
}

// Reads CLOCK_REALTIME - CLOCK_MONOTONIC into *offset. Returns 0 if every attempt was interrupted.
static int read_offset(int64_t *offset)
{
    for (int i = 0; i < TRIES; i++) {
        int64_t before = clock_ns(CLOCK_MONOTONIC);
        int64_t real = clock_ns(CLOCK_REALTIME);
        int64_t after = clock_ns(CLOCK_MONOTONIC);

        if (after - before <= LONG_LOOK_NS) {
            *offset = real - (before + (after - before) / 2);
            return 1;
        }
    }
    return 0;
}

struct clocks {
    int known;
    int64_t first, last, step, step_at; // values of the offset
    int64_t begin, raw_begin;
};

static void watch_clocks(struct clocks *c)
{
    int64_t offset;

    if (!read_offset(&offset))
        return;
    if (!c->known) {
        c->known = 1;
        c->first = c->last = offset;
        return;
    }
    int64_t step = offset - c->last;
    if (llabs(step) > llabs(c->step)) {
        c->step = step;
        c->step_at = clock_ns(CLOCK_REALTIME);
    }
    c->last = offset;
}

struct lags {
    uint64_t samples, skipped;
    int64_t most, most_at;
    uint64_t counts[BUCKETS];
};

static void note(struct lags *l, int64_t late)
{
    l->samples++;
    if (late > l->most) {
        l->most = late;
        l->most_at = clock_ns(CLOCK_REALTIME);
    }
    l->counts[bucket_of(late < 0 ? 0 : late)]++;
}

static int64_t quantile(const struct lags *l, double q)
{
    uint64_t seen = 0, wanted = (uint64_t)((double)l->samples * q);

    for (unsigned b = 0; b < BUCKETS; b++) {
        seen += l->counts[b];
        if (seen > wanted)
            return upper_ns(b) < l->most ? upper_ns(b) : l->most;
    }
    return l->most;
}

static void report(const struct lags *l, const struct clocks *c, int64_t interval)
{
    const char *comma = "";

    struct timespec resolution;
    if (clock_getres(CLOCK_MONOTONIC, &resolution) != 0)
        die("clock_getres");
    printf("{\"interval_ns\": %" PRId64 ", \"samples\": %" PRIu64 ", \"skipped\": %" PRIu64,
           interval, l->samples, l->skipped);
    printf(", \"late_ns\": {\"p50\": %" PRId64 ", \"p99\": %" PRId64 ", \"max\": %" PRId64 "}",
           quantile(l, 0.5), quantile(l, 0.99), l->most);
    printf(", \"max_at_s\": %.6f, \"histogram\": [", (double)l->most_at / (double)NS_PER_S);
    for (unsigned b = 0; b < BUCKETS; b++) {
        if (l->counts[b] == 0)
            continue;
        printf("%s[%" PRId64 ", %" PRIu64 "]", comma, upper_ns(b), l->counts[b]);
        comma = ", ";
    }
    printf("], \"clock\": {\"resolution_ns\": %" PRId64 ", \"look_ns\": %" PRId64,
           resolution.tv_sec * NS_PER_S + resolution.tv_nsec, least_look_ns());
    printf(", \"elapsed_ns\": %" PRId64 ", \"raw_elapsed_ns\": %" PRId64,
           clock_ns(CLOCK_MONOTONIC) - c->begin, clock_ns(CLOCK_MONOTONIC_RAW) - c->raw_begin);
    printf(", \"shift_ns\": %" PRId64 ", \"step_ns\": %" PRId64 ", \"step_at_s\": %.6f}",
           c->last - c->first, c->step, (double)c->step_at / (double)NS_PER_S);
    printf(", \"cpu_ns\": %" PRId64 "}\n", clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    if (fflush(stdout) != 0)
        die("standard output");
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    static struct lags lags;
    struct clocks clocks = {0};
    char *rest = NULL;

    int64_t interval = argc == 2 ? strtoll(argv[1], &rest, 10) * 1000 : 0;
    if (argc != 2 || *rest != '\0' || interval <= 0 || interval > 3600 * NS_PER_S) {
        fprintf(stderr, "usage: hostlag INTERVAL_US; found '%s'; valid: 1 to 3600000000\n",
                argc > 1 ? argv[1] : "");
        return 2;
    }
    if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0 ||
        sigaction(SIGUSR1, &action, NULL) != 0)
        die("sigaction");
    if (prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) != 0)
        die("prctl");
    clocks.begin = clock_ns(CLOCK_MONOTONIC);
    clocks.raw_begin = clock_ns(CLOCK_MONOTONIC_RAW);
    watch_clocks(&clocks);
    // Several instances must not all wake at once: they would wait for each other.
    int64_t due = clocks.begin + interval + interval * (getpid() % PHASES) / PHASES;
    while (!ended) {
        struct timespec until = {.tv_sec = due / NS_PER_S, .tv_nsec = due % NS_PER_S};

        const int interrupted = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        if (forgets) {
            forgets = 0;
            memset(&lags, 0, sizeof lags);
        }
        if (interrupted)
            continue;
        int64_t late = clock_ns(CLOCK_MONOTONIC) - due;
        note(&lags, late);
        lags.skipped += (uint64_t)(late / interval);
        due += (late / interval + 1) * interval;
        watch_clocks(&clocks);
    }
    watch_clocks(&clocks);
    report(&lags, &clocks, interval);
    return 0;
}
