// SPDX-License-Identifier: Apache-2.0
// Simulates a host whose clock is wrong: preloaded into a program (LD_PRELOAD), it adds
// DOWNPOUR_CLOCK_OFFSET_NS to the time of day that the program reads. All hosts of an emulated
// network share one kernel and therefore one clock, and Linux has no namespace for the time of day.
// Clocks that measure durations are unchanged; so are the kernel's own timestamps, such as those of
// files.
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
#define VARIABLE "DOWNPOUR_CLOCK_OFFSET_NS"
#define MOST_NS (INT64_C(1000000) * NS_PER_S) // keeps every sum below within int64_t

static int64_t offset_ns;
static int (*read_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv(VARIABLE);
    char *end = NULL;

    // dlsym() returns an object pointer; a union converts it to a function pointer without a cast.
    union {
        void *object;
        int (*function)(clockid_t, struct timespec *);
    } found = {.object = dlsym(RTLD_NEXT, "clock_gettime")};
    read_clock = found.function;
    if (!text)
        return;
    errno = 0;
    long long given = strtoll(text, &end, 10);
    if (!read_clock || errno || end == text || *end || given < -MOST_NS || given > MOST_NS) {
        fprintf(stderr, "clockoffset: found " VARIABLE "='%s'; valid: nanoseconds\n", text);
        _Exit(2);
    }
    offset_ns = given;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    // Another library's constructor may call this before ours has run.
    if (!read_clock)
        begin();
    int failed = read_clock(clock, t);

    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t ns = t->tv_nsec + offset_ns % NS_PER_S;
    t->tv_sec += offset_ns / NS_PER_S + (ns >= NS_PER_S) - (ns < 0);
    t->tv_nsec = ns + (ns < 0 ? NS_PER_S : 0) - (ns >= NS_PER_S ? NS_PER_S : 0);
    return 0;
}

// Like the C library, this ignores the zone and assumes that t is not NULL.
int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *t)
{
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    if (t)
        *t = now.tv_sec;
    return now.tv_sec;
}
