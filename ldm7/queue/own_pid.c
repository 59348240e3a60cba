/* SPDX-License-Identifier: Apache-2.0 */
#include "own_pid.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

static _Atomic pid_t known;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool noticed; /* forks */

static void learn(void)
{
    atomic_store(&known, getpid());
}

static void start(void)
{
    noticed = pthread_atfork(NULL, NULL, learn) == 0;
    learn();
}

pid_t own_pid(void)
{
    pthread_once(&once, start);
    return noticed ? atomic_load(&known) : getpid();
}
