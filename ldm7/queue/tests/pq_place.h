/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a test program's queue lies: in its own directory, made and removed by the group's set-up
 * and tear-down. Include this after cmocka.h.
 */
#ifndef PQ_PLACE_H
#define PQ_PLACE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[] = "/tmp/test-pq-XXXXXX";
static char path[64]; /* of the queue */

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/queue", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

#endif
