/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The mappings of a guest's process are mappings of its process on the host, which may have 65,530
 * (vm.max_map_count). Pages that do not lie together need one each: 256 MB.
 */
#ifndef DOWNPOUR_STUB_H
#define DOWNPOUR_STUB_H

#include <as-layout.h>
#include <mm_id.h>
#include <stub-data.h>

/* Make the next thing that the host's process does: drop all its mappings. A page that the program
 * touches then is mapped again, as after a flush of a processor's TLB. */
static inline void downpour_unmap_all(struct mm_id *mm_idp)
{
	struct stub_data *data = (void *)mm_idp->stack;

	data->syscall_data[0].syscall = STUB_SYSCALL_MUNMAP;
	data->syscall_data[0].mem.addr = 0;
	data->syscall_data[0].mem.length = STUB_START;
	data->syscall_data_len = 1;
	data->err = 0;
	mm_idp->syscall_fd_num = 0;
}

#endif
