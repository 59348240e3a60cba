/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How programs share a guest's processor. Whoever wakes runs at once, as each of a network's hosts has
 * processors of its own: what it slept before gives it no debt (PLACE_LAG, DELAY_DEQUEUE), and no
 * running program keeps the rest of its slice (RUN_TO_PARITY). Those that never sleep take turns by the
 * scheduler's timer (HRTICK) instead of its tick of 4 ms. A switch takes no time here.
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
