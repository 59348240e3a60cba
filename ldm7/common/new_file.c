/* SPDX-License-Identifier: Apache-2.0 */
#include "new_file.h"

#include <stdbool.h>
#include <unistd.h>

int new_file_begin(struct new_file *n, const char *path)
{
    n->path = path;
    snprintf(n->temporary, sizeof n->temporary, "%s.%ld.tmp", path, (long)getpid());
    n->stream = fopen(n->temporary, "we");
    return !n->stream ? -1 : 0;
}

int new_file_end(struct new_file *n)
{
    bool ok = !ferror(n->stream);

    ok = fclose(n->stream) == 0 && ok;
    if (ok && rename(n->temporary, n->path) == 0)
        return 0;
    unlink(n->temporary);
    return -1;
}
