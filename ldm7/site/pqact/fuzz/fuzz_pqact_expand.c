/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes what an identifier from the network does to an entry: the lines are expression, text,
 * identifier; the first byte moves the creation time. No file that the result opens is outside the
 * directory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "datadir.h"
#include "fuzz.h"
#include "site/pqact/template.h"

static struct datadir dir;

static void check_file(const char *path)
{
    char err[200];
    int fd = datadir_append(&dir, path, err, sizeof err);

    if (fd < 0)
        return;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    char real[5000];
    ssize_t n = readlink(link, real, sizeof real - 1);
    if (n < 0 && errno == ENAMETOOLONG) {
        close(fd); /* deeper than the kernel can report */
        return;
    }
    if (n < 0 || strncmp(real, "/dev/shm/fuzz-pqact-", 20) != 0)
        abort();
    real[n] = '\0';
    if (!strchr(real + 20, '/'))
        abort();
    close(fd);
    unlink(real);
}

static void set_up(void)
{
    static char name[] = "/dev/shm/fuzz-pqact-XXXXXX";

    if (!mkdtemp(name) || datadir_open(&dir, name) < 0)
        abort();
    char command[200];
    snprintf(command, sizeof command, "ln -s / %s/root; ln -s .. %s/up; mkdir %s/sub", name, name,
             name);
    if (system(command) != 0)
        abort();
}

static void tidy(void)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir.fd);
    char real[100];
    ssize_t n = readlink(link, real, sizeof real - 1);
    if (n < 20 || strncmp(real, "/dev/shm/fuzz-pqact-", 20) != 0)
        abort();
    real[n] = '\0';
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", real);
    if (system(command) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    char text[1024] = "";
    struct pq_info info = {0};
    struct ere_span spans[100] = {{0}};

    if (!ready) {
        set_up();
        atexit(tidy);
        ready = true;
    }
    if (size < 1 || size >= sizeof text)
        return 0;
    memcpy(text, data + 1, size - 1);
    info.creation.tv_sec = data[0] == 255 ? INT64_MAX : 1400000000 + data[0] * 100000;
    char *save;
    char *ere_text = strtok_r(text, "\n", &save);
    char *template_text = strtok_r(NULL, "\n", &save);
    char *ident = strtok_r(NULL, "", &save);
    char err[600];
    struct ere *re;
    if (!ident || strlen(ident) > PQ_IDENT_MAX ||
        ere_compile_groups(&re, ere_text, err, sizeof err) < 0)
        return 0;
    struct template *t = ere_groups(re) < 100
                             ? template_compile(template_text, ere_groups(re), err, sizeof err)
                             : NULL;
    if (t && ere_match_groups(re, ident, spans, 100) == ERE_YES) {
        char out[4096];
        long n = template_expand(t, &info, spans, 100, out, sizeof out, err, sizeof err);

        if (n >= 0 && strlen(out) != (size_t)n)
            abort();
        if (n >= 0)
            check_file(out);
    }
    template_free(t);
    ere_free(re);
    return 0;
}
