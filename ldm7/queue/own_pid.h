/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's ID without a system call each time (the C library asks the kernel every time):
 * every log line and every operation of the queue uses it.
 */
#ifndef LDM_OWN_PID_H
#define LDM_OWN_PID_H

#include <sys/types.h>

/* Works like getpid(), also after fork(). */
pid_t own_pid(void);

#endif
