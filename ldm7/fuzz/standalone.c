/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target without a fuzzer: every file of the corpus directory, then a bounded number
 * of random mutations of them, the same ones every time.
 *   TARGET CORPUS-DIRECTORY [MUTATIONS]
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { FILES_MAX = 256, BYTES_MAX = 1 << 16, MUTATIONS = 20000 };

static uint64_t rng = 20150615;

static uint32_t draw(uint32_t below)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((rng >> 32) * below >> 32);
}

static struct {
    uint8_t *data;
    size_t bytes;
} files[FILES_MAX];

static size_t load(const char *dir)
{
    struct dirent **list;
    size_t count = 0;
    int n = scandir(dir, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        FILE *f = list[i]->d_name[0] == '.' || count == FILES_MAX ? NULL : fopen(path, "rb");
        free(list[i]);
        if (!f)
            continue;
        uint8_t *data = malloc(BYTES_MAX);
        files[count].bytes = fread(data, 1, BYTES_MAX, f);
        files[count++].data = data;
        fclose(f);
    }
    if (n >= 0)
        free(list);
    return count;
}

static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes ? bytes : 1); /* so that the sanitizer sees a read past the end */
    memcpy(exact, data, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static size_t mutate(uint8_t *data, size_t bytes, size_t count)
{
    static const uint8_t likely[] = {0, 1, 0x7f, 0x80, 0xff, '0', '9', ' ', '\n', '(', '~', '|'};
    for (uint32_t changes = 1 + draw(4); changes; changes--) {
        uint32_t at = draw((uint32_t)bytes + 1), n = 1 + draw(8);
        switch (draw(6)) {
        case 0: /* a bit */
            if (at < bytes)
                data[at] ^= (uint8_t)(1u << draw(8));
            break;
        case 1: /* a byte */
            if (at < bytes)
                data[at] = draw(2) ? (uint8_t)draw(256) : likely[draw(sizeof likely)];
            break;
        case 2: /* cut off */
            bytes = at;
            break;
        case 3: /* take out */
            if (at + n < bytes) {
                memmove(data + at, data + at + n, bytes - at - n);
                bytes -= n;
            }
            break;
        case 4: /* put in */
            if (bytes + n <= BYTES_MAX) {
                memmove(data + at + n, data + at, bytes - at);
                memset(data + at, likely[draw(sizeof likely)], n);
                bytes += n;
            }
            break;
        case 5: { /* the rest of another file */
            size_t other = draw((uint32_t)count), from = draw((uint32_t)files[other].bytes + 1);
            size_t take = files[other].bytes - from;
            if (at + take <= BYTES_MAX) {
                memcpy(data + at, files[other].data + from, take);
                bytes = at + take;
            }
            break;
        }
        }
    }
    return bytes;
}

int main(int argc, char **argv)
{
    static uint8_t work[BYTES_MAX];
    long mutations = argc > 2 ? strtol(argv[2], NULL, 10) : MUTATIONS;
    size_t count = argc > 1 ? load(argv[1]) : 0;
    if (!count) {
        fprintf(stderr, "usage: %s CORPUS-DIRECTORY [MUTATIONS]; the directory must have files\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < count; i++)
        run(files[i].data, files[i].bytes);
    for (long m = 0; m < mutations; m++) {
        size_t i = draw((uint32_t)count);
        memcpy(work, files[i].data, files[i].bytes);
        run(work, mutate(work, files[i].bytes, count));
    }
    printf("%zu files, %ld mutations\n", count, mutations);
    for (size_t i = 0; i < count; i++)
        free(files[i].data);
    return 0;
}
