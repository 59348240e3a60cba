/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct source *open_sources;
static volatile sig_atomic_t some_cut;

/* A mapped file became shorter, or its disk fails: zeros replace the lost content, so that the
 * program survives to report it. Any other SIGBUS ends the program. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)info->si_addr / page * page;

    (void)context;
    for (struct source *s = open_sources; s; s = s->next_open) {
        uintptr_t begin = (uintptr_t)s->data;
        if (at < begin || at >= begin + s->size)
            continue;
        s->cut = some_cut = 1;
        if (mmap((void *)at, begin + s->size - at, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
            return;
    }
    signal(number, SIG_DFL);
}

void source_catch_bus_errors(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};

    sigaction(SIGBUS, &action, NULL);
}

bool source_any_cut(void)
{
    bool any = some_cut;

    some_cut = 0;
    return any;
}

struct source *source_first_open(void)
{
    return open_sources;
}

struct source *source_new(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        die_usage("'%s': %s", path, strerror(errno));
    close(fd);
    if (!S_ISREG(st.st_mode))
        die_usage("'%s': not a regular file", path);
    if (st.st_size > UINT32_MAX)
        die_usage("'%s': %lld bytes; FMTP takes files of at most 4294967295", path,
                  (long long)st.st_size);
    struct source *s = xcalloc(1, sizeof *s);
    s->fd = -1;
    s->path = xstrdup(path);
    s->name = strrchr(s->path, '/') ? strrchr(s->path, '/') + 1 : s->path;
    if (strlen(s->name) > FMTP_MAX_METADATA)
        die_usage("'%s': name of more than %u bytes", path, FMTP_MAX_METADATA);
    return s;
}

void source_open(struct source *s, unsigned users)
{
    struct stat st = {0};

    s->users = users;
    s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
    int error = s->fd < 0 || fstat(s->fd, &st) < 0 ? errno : 0;
    if (!error && (!S_ISREG(st.st_mode) || st.st_size > UINT32_MAX))
        error = S_ISREG(st.st_mode) ? EFBIG : EINVAL;
    s->size = error ? 0 : (size_t)st.st_size;
    s->modified = st.st_mtim;
    if (s->size) {
        s->data = mmap(NULL, s->size, PROT_READ, MAP_SHARED, s->fd, 0);
        error = s->data == MAP_FAILED ? errno : 0;
    }
    s->unreadable = error != 0;
    if (error) {
        s->data = NULL;
        s->size = 0;
        progress("%s", "");
        fprintf(stderr, "%s: '%s': %s; skipped\n", program, s->path, strerror(error));
        return;
    }
    if (s->size)
        madvise(s->data, s->size, MADV_SEQUENTIAL);
    s->next_open = open_sources;
    open_sources = s;
}

bool source_is_intact(struct source *s)
{
    struct stat st;

    if (s->fd < 0 || s->changed)
        return !s->changed;
    s->changed = s->cut || fstat(s->fd, &st) < 0 || (size_t)st.st_size != s->size ||
                 st.st_mtim.tv_sec != s->modified.tv_sec ||
                 st.st_mtim.tv_nsec != s->modified.tv_nsec;
    if (s->changed) {
        progress("%s", "");
        fprintf(stderr, "%s: '%s': changed or unreadable while it was sent\n", program, s->path);
    }
    return !s->changed;
}

void source_leave(struct source *s)
{
    if (--s->users == 0)
        source_free(s);
}

void source_free(struct source *s)
{
    struct source **link = &open_sources;

    while (*link && *link != s)
        link = &(*link)->next_open;
    if (*link)
        *link = s->next_open;
    if (s->data)
        munmap(s->data, s->size);
    if (s->fd >= 0)
        close(s->fd);
    free(s->path);
    free(s);
}
