/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target without a fuzzer, as a test:
 *   fuzz_NAME [-runs=N] CORPUS_DIRECTORY
 * over each file of the corpus, then over N (20000) variants made from them with a fixed seed
 * (changed, removed, inserted, duplicated bytes), so every run uses the same ones. With
 * DOWNPOUR_TEST_LONG it makes five times as many.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define FILES_MAX 256
#define BYTES_MAX 65536u

static struct {
    uint8_t *bytes;
    size_t n;
} files[FILES_MAX];
static size_t nfiles;
static uint64_t seed = 20150615;

static uint32_t rnd(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return below == 0 ? 0 : (uint32_t)(seed >> 33) % below;
}

static void run(const uint8_t *bytes, size_t n)
{
    uint8_t *exact =
        malloc(n > 0 ? n : 1); /* exact size: the sanitizer detects reads past the end */

    memcpy(exact, bytes, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static size_t mutate(uint8_t *b, size_t n)
{
    static const uint8_t special[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '\n'};

    for (uint32_t k = rnd(4) + 1; k > 0; k--) {
        size_t at = rnd((uint32_t)n), len = rnd(16) + 1;

        switch (rnd(5)) {
        case 0:
            if (n > 0)
                b[at] = (uint8_t)rnd(256);
            break;
        case 1:
            if (n > 0)
                b[at] = special[rnd(sizeof special)];
            break;
        case 2:
            if (n > 0)
                b[at] ^= (uint8_t)(1u << rnd(8));
            break;
        case 3:
            if (at + len < n) {
                memmove(b + at, b + at + len, n - at - len);
                n -= len;
            }
            break;
        default:
            if (n + len < BYTES_MAX && at < n) {
                memmove(b + at + len, b + at, n - at);
                n += len;
            }
        }
    }
    return n;
}

static int load(const char *dir)
{
    DIR *d = opendir(dir);

    if (!d) {
        perror(dir);
        return -1;
    }
    struct dirent *e;
    while ((e = readdir(d)) && nfiles < FILES_MAX) {
        if (e->d_name[0] == '.')
            continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *f = fopen(path, "rb");
        if (!f)
            continue;
        files[nfiles].bytes = malloc(BYTES_MAX);
        files[nfiles].n = fread(files[nfiles].bytes, 1, BYTES_MAX / 2, f);
        nfiles++;
        fclose(f);
    }
    closedir(d);
    return nfiles > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    static uint8_t work[BYTES_MAX];
    unsigned long count = 20000;
    const char *corpus = NULL;

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-runs=", 6) == 0)
            count = strtoul(argv[i] + 6, NULL, 10);
        else
            corpus = argv[i];
    }
    if (!corpus || load(corpus) < 0) {
        fprintf(stderr, "usage: %s [-runs=N] CORPUS_DIRECTORY (with at least one file)\n", argv[0]);
        return 2;
    }
    if (getenv("DOWNPOUR_TEST_LONG"))
        count *= 5;
    for (size_t i = 0; i < nfiles; i++)
        run(files[i].bytes, files[i].n);
    for (unsigned long i = 0; i < count; i++) {
        size_t which = rnd((uint32_t)nfiles), n = files[which].n;

        memcpy(work, files[which].bytes, n);
        run(work, mutate(work, n));
    }
    printf("%zu corpus files, %lu mutations\n", nfiles, count);
    for (size_t i = 0; i < nfiles; i++)
        free(files[i].bytes);
    return 0;
}
