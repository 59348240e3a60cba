/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The status page and the seeded randomness: see linux/downpour.h.
 */
#include <linux/downpour.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/kstrtox.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <init.h>
#include <kern.h>
#include <os.h>

/* The host's file is mapped over this page: its address is known before any memory is managed. */
static u8 page[PAGE_SIZE] __aligned(PAGE_SIZE);
struct downpour_status *downpour_status;

#define FREE_ERRORS 10000
unsigned int downpour_errors;

bool downpour_error_takes_time(void)
{
	if (downpour_errors >= FREE_ERRORS)
		return true;
	downpour_errors++;
	return false;
}

u64 downpour_sched_clock(u64 virtual_ns, u64 given_ns)
{
	static u64 last_ns;

	last_ns = max(last_ns, virtual_ns + given_ns);
	return last_ns;
}

static u64 stream;
static bool seeded;

void downpour_show_task(const struct task_struct *task)
{
	u64 sequence = downpour_status->sequence;

	WRITE_ONCE(downpour_status->sequence, sequence + 1);
	barrier();
	downpour_status->pid = task->pid;
	memcpy(downpour_status->comm, task->comm, sizeof(downpour_status->comm));
	barrier();
	WRITE_ONCE(downpour_status->sequence, sequence + 2);
}

/* SplitMix64 (Steele, Lea, Flood 2014): a counter, mixed. What is made of it are keys of the kernel's
 * own generator, which the programs' bytes come from. */
bool downpour_random(void *buffer, size_t length)
{
	u8 *to = buffer;

	if (!seeded)
		return false;
	while (length > 0) {
		size_t part = min(length, sizeof(u64));
		u64 word = stream += 0x9e3779b97f4a7c15ULL;

		word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
		word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
		word ^= word >> 31;
		memcpy(to, &word, part);
		to += part;
		length -= part;
	}
	return true;
}

static int __init status_setup(char *path, int *add)
{
	char last;
	int fd;

	*add = 0;
	fd = os_open_file(path, of_rdwr(OPENFLAGS()), 0);
	/* Reading its last byte shows whether the page is there. (os_file_size would print with printk,
	 * which a kernel that does not run yet cannot.) */
	if (fd < 0 || os_pread_file(fd, &last, 1, PAGE_SIZE - 1) != 1 ||
	    os_map_memory(page, fd, 0, PAGE_SIZE, 1, 1, 0) < 0) {
		os_warn("linux: found downpour_status='%s'; valid: a file of at least %lu bytes that can be written\n",
			path, (unsigned long)PAGE_SIZE);
		exit(1);
	}
	os_close_file(fd);
	downpour_status = (struct downpour_status *)page;
	memset(downpour_status, 0, sizeof(*downpour_status));
	downpour_status->version = DOWNPOUR_STATUS_VERSION;
	downpour_status->size = sizeof(*downpour_status);
	barrier();
	memcpy(downpour_status->magic, DOWNPOUR_STATUS_MAGIC, sizeof(downpour_status->magic));
	return 0;
}

__uml_setup("downpour_status=", status_setup,
"downpour_status=<file of the host>\n"
"    Keep the first page of this file up to date with the virtual time, the task\n"
"    that runs and counters.\n\n"
);

static int __init seed_setup(char *text, int *add)
{
	unsigned long long seed;

	if (kstrtoull(text, 10, &seed)) {
		os_warn("linux: found downpour_seed='%s'; valid: 0 to 18446744073709551615\n", text);
		exit(1);
	}
	stream = seed;
	seeded = true;
	return 0;
}

__uml_setup("downpour_seed=", seed_setup,
"downpour_seed=<number>\n"
"    Make all randomness of the kernel follow from this number.\n\n"
);

/* Else the kernel would hand it to init as an environment variable. */
static int __init seed_is_known(char *text)
{
	return 1;
}
__setup("downpour_seed=", seed_is_known);
