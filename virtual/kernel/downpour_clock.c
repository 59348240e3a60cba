/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The page that the vDSO reads the time from: see linux/downpour_clock.h.
 */
#include <linux/downpour_clock.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/timekeeping.h>
#include <linux/time-internal.h>

/* 4 us: a signal by timer to a program that does nothing but read the clock is late by no more. */
#define READINGS 16

static struct page *page;
static struct downpour_clock *clock;

/* In the other modes, time passes by itself. */
static bool stands_still(void)
{
	return time_travel_mode == TT_MODE_INFCPU || time_travel_mode == TT_MODE_EXTERNAL;
}

static int __init downpour_clock_init(void)
{
	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!page)
		panic("Cannot allocate the clock's page\n");
	clock = page_address(page);
	if (stands_still())
		clock->limit = READINGS;
	return 0;
}
subsys_initcall(downpour_clock_init);

void downpour_clock_collect(void)
{
	u32 readings;

	if (!clock || !clock->readings)
		return;
	/* A program may write anything there. */
	readings = min_t(u32, clock->readings, READINGS);
	clock->readings = 0;
	time_travel_ndelay(readings * (unsigned long)TIMER_MULTIPLIER);
}

void downpour_clock_publish(void)
{
	unsigned long flags;

	if (!clock || !stands_still())
		return;
	downpour_clock_collect();
	/* With interrupts off, reading the clock costs nothing. */
	local_irq_save(flags);
	clock->limit = READINGS;
	clock->reading_ns = TIMER_MULTIPLIER;
	clock->monotonic_ns = ktime_get_ns();
	clock->realtime_minus_monotonic_ns = ktime_to_ns(ktime_mono_to_real(0));
	clock->boottime_minus_monotonic_ns = ktime_to_ns(ktime_mono_to_any(0, TK_OFFS_BOOT));
	local_irq_restore(flags);
}

int downpour_clock_map(struct mm_struct *mm, unsigned long address)
{
	static struct page *pages[2];
	static struct vm_special_mapping mapping = {
		.name = "[vvar]",
		.pages = pages,
	};

	pages[0] = page;
	return PTR_ERR_OR_ZERO(_install_special_mapping(mm, address, PAGE_SIZE,
		VM_READ | VM_WRITE | VM_SHARED | VM_MAYREAD | VM_MAYWRITE | VM_MAYSHARE,
		&mapping));
}
