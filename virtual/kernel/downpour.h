/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What a User-Mode Linux guest of Downpour has beside the kernel of its source: a status page for the
 * host, and randomness from a seed. Both are asked for on the kernel's command line.
 *
 * downpour_status=PATH   PATH names a file of the host, at least 4096 bytes long, whose first 4096
 *     bytes the kernel maps shared and keeps up to date (struct downpour_status, host byte order).
 *     `sequence` is odd while the kernel changes the task: a reader takes it, then the page, then it
 *     again, and reads once more unless it was even and the same. The other fields change by
 *     themselves, each in one store of 8 bytes. The kernel takes PATH off its command line, so that
 *     programs in the guest see no path of the host.
 * downpour_seed=N        N: 0 to 2^64 - 1. Every byte of the kernel's random number generator then
 *     follows from N and from the order in which bytes were taken.
 */
#ifndef _LINUX_DOWNPOUR_H
#define _LINUX_DOWNPOUR_H

#include <linux/compiler.h>
#include <linux/types.h>

struct task_struct;

#define DOWNPOUR_STATUS_MAGIC "DPSTATUS" /* 8 bytes, no NUL; written last */
#define DOWNPOUR_STATUS_VERSION 1

struct downpour_status {
	char magic[8];
	u32 version;
	u32 size;	/* of this structure */
	u64 sequence;
	u64 virtual_ns;	/* since boot */
	u64 jumps;	/* of the clock to the next timer while no task could run */
	u64 switches;	/* from task to task */
	u64 syscalls;
	s32 pid;	/* of the task on the processor, 0: idle */
	u32 reserved;
	char comm[16];	/* its name, padded with NUL */
};

/* NULL: no status page was asked for. */
extern struct downpour_status *downpour_status;

void downpour_show_task(const struct task_struct *task);

static inline void downpour_switched(const struct task_struct *to)
{
	if (!downpour_status)
		return;
	WRITE_ONCE(downpour_status->switches, downpour_status->switches + 1);
	downpour_show_task(to);
}

/* The name too, because a task may change it (exec, prctl). */
static inline void downpour_called(const struct task_struct *task)
{
	if (!downpour_status)
		return;
	WRITE_ONCE(downpour_status->syscalls, downpour_status->syscalls + 1);
	downpour_show_task(task);
}

static inline void downpour_time(u64 virtual_ns)
{
	if (downpour_status)
		WRITE_ONCE(downpour_status->virtual_ns, virtual_ns);
}

/* Whether a system call that failed takes time. In the source each takes 1 us, so that a program that
 * only repeats such calls moves the clock. But every start of a program and every event loop makes such
 * calls. Here the first ten thousand since the machine was last idle take no time.
 */
bool downpour_error_takes_time(void);

extern unsigned int downpour_errors;

static inline void downpour_jumped(void)
{
	downpour_errors = 0;
	if (downpour_status)
		WRITE_ONCE(downpour_status->jumps, downpour_status->jumps + 1);
}

/* The time by which the scheduler shares the processor: virtual time, and the ticks that it gave away.
 * The source counts whole ticks of 4 ms: a program that never sleeps would keep the processor until the
 * next tick. The result never decreases.
 */
u64 downpour_sched_clock(u64 virtual_ns, u64 given_ns);

/* With a seed: fills `buffer` from its stream and returns true. */
bool downpour_random(void *buffer, size_t length);

#endif
