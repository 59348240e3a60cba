/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The vDSO of a guest: takes the time from the page of linux/downpour_clock.h, which lies directly below
 * this code's only page. What it cannot answer is a system call. Replaces the source's own, where
 * everything is one.
 */
#define DISABLE_BRANCH_PROFILING

#include <linux/downpour_clock.h>
#include <asm/unistd.h>

#define SECOND_NS 1000000000ul

struct seconds_and_part { long seconds, part; };	/* a timespec or a timeval */

int __vdso_clock_gettime(int id, struct seconds_and_part *ts);
int __vdso_gettimeofday(struct seconds_and_part *tv, void *zone);
long __vdso_time(long *t);
int clock_gettime(int id, struct seconds_and_part *ts) __attribute__((weak, alias("__vdso_clock_gettime")));
int gettimeofday(struct seconds_and_part *tv, void *zone) __attribute__((weak, alias("__vdso_gettimeofday")));
long time(long *t) __attribute__((weak, alias("__vdso_time")));

static inline long call(long number, long a, const void *b)
{
	long result;

	asm volatile("syscall" : "=a" (result) : "0" (number), "D" (a), "S" (b) : "rcx", "r11", "memory");
	return result;
}

static inline struct downpour_clock *page(void)
{
	unsigned long here;

	asm("lea (%%rip), %0" : "=r" (here));
	return (struct downpour_clock *)((here & ~4095ul) - 4096);
}

/* 0: a system call is needed. */
static inline unsigned long read_ns(int id)
{
	struct downpour_clock *clock = page();
	unsigned long offset;

	switch (id) {
	case 0: /* CLOCK_REALTIME */
		offset = clock->realtime_minus_monotonic_ns;
		break;
	case 1: /* CLOCK_MONOTONIC */
		offset = 0;
		break;
	case 7: /* CLOCK_BOOTTIME */
		offset = clock->boottime_minus_monotonic_ns;
		break;
	default:
		return 0;
	}
	if (clock->readings >= clock->limit)
		return 0;
	clock->readings++;
	return clock->monotonic_ns + clock->readings * clock->reading_ns + offset;
}

int __vdso_clock_gettime(int id, struct seconds_and_part *ts)
{
	unsigned long ns = read_ns(id);

	if (!ns)
		return call(__NR_clock_gettime, id, ts);
	ts->seconds = ns / SECOND_NS;
	ts->part = ns % SECOND_NS;
	return 0;
}

int __vdso_gettimeofday(struct seconds_and_part *tv, void *zone)
{
	unsigned long ns = tv && !zone ? read_ns(0) : 0;

	if (!ns)
		return call(__NR_gettimeofday, (long)tv, zone);
	tv->seconds = ns / SECOND_NS;
	tv->part = ns % SECOND_NS / 1000;
	return 0;
}

long __vdso_time(long *t)
{
	return call(__NR_time, (long)t, NULL);
}
