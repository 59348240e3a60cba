/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Reading the clock without a system call, in virtual time. A system call of a User-Mode Linux guest
 * is two switches between processes of the host, and event loops ask the time at each wake-up.
 *
 * While a program runs, virtual time stands still, except that each reading of the clock costs
 * TIMER_MULTIPLIER ns (arch/um/kernel/time.c says why: a loop that waits for time to pass must end).
 * So the kernel writes the time into a page before each return to a program; the vDSO takes it from
 * there, counts its readings in the page and adds their cost; the kernel lets that time pass at the
 * next system call or switch. After `limit` readings the vDSO makes a true system call, in which timers that have
 * become due run. All of this repeats exactly, as the system calls did.
 */
#ifndef _LINUX_DOWNPOUR_CLOCK_H
#define _LINUX_DOWNPOUR_CLOCK_H

#include <linux/types.h>

struct mm_struct;

struct downpour_clock {
	u64 monotonic_ns;
	u64 realtime_minus_monotonic_ns;
	u64 boottime_minus_monotonic_ns;
	u64 reading_ns;	/* what a reading costs */
	u32 readings;	/* since the kernel last looked; the only field that the vDSO writes */
	u32 limit;	/* 0: the vDSO makes system calls */
};

/* Before a program runs. */
void downpour_clock_publish(void);
/* Lets the time of the readings since the last call pass. */
void downpour_clock_collect(void);
/* Maps the page for a new program. 0 or a negative error number. */
int downpour_clock_map(struct mm_struct *mm, unsigned long address);

#endif
