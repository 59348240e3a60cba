/* SPDX-License-Identifier: Apache-2.0 */
#include "file_limit.h"

#include <sys/resource.h>

size_t file_limit_set(size_t files)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    limit.rlim_cur = files < limit.rlim_max ? files : limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) < 0 ? 0 : limit.rlim_cur;
}
