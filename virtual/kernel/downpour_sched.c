/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How programs share a guest's processor. A program that wakes runs at once, because each host of a
 * network would have its own processors: it owes nothing for the time before it slept (PLACE_LAG,
 * DELAY_DEQUEUE), and the program that runs does not keep the rest of its slice (RUN_TO_PARITY).
 * Programs that never sleep take turns by the scheduler's timer (HRTICK), not by its tick of 4 ms. A
 * switch takes no time here.
 */
#include <linux/init.h>
#include "sched.h"

#define SLICE_NS 100000
#define FEATURE(name) (1UL << __SCHED_FEAT_##name)

static int __init downpour_sched_init(void)
{
	sysctl_sched_base_slice = SLICE_NS;
	sysctl_sched_features |= FEATURE(HRTICK);
	sysctl_sched_features &= ~(FEATURE(PLACE_LAG) | FEATURE(DELAY_DEQUEUE) | FEATURE(RUN_TO_PARITY));
	return 0;
}
late_initcall(downpour_sched_init);
