/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target without a fuzzer: replays the files of a corpus, then a bounded number of
 * mutations of them that depend on nothing but the seed.
 * Usage: TARGET [-runs=N] [-seed=N] FILE|DIRECTORY...
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { INPUT_BYTES = 8192, INPUTS = 256 };

static struct { uint8_t *bytes; size_t len; } inputs[INPUTS];
static size_t ninputs;
static uint64_t state = 1;

static uint32_t random_below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) * n >> 31);
}

static void load_file(const char *path)
{
    FILE *f = fopen(path, "rb");

    if (!f || ninputs == INPUTS) {
        fprintf(stderr, "cannot read '%s'\n", path);
        exit(2);
    }
    inputs[ninputs].bytes = malloc(INPUT_BYTES);
    inputs[ninputs].len = fread(inputs[ninputs].bytes, 1, INPUT_BYTES, f);
    ninputs++;
    fclose(f);
}

static void load(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    if (!dir) {
        load_file(path);
        return;
    }
    while ((e = readdir(dir))) {
        char name[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        load_file(name);
    }
    closedir(dir);
}

static size_t mutate(uint8_t *b, size_t len)
{
    static const uint8_t interesting[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 255, 0x7f, 0x05, 0xa8};

    for (uint32_t n = 1 + random_below(6); n; n--) {
        uint32_t at = len ? random_below((uint32_t)len) : 0;
        uint32_t span = 1 + random_below(40);
        switch (random_below(6)) {
        case 0:
            if (len)
                b[at] ^= (uint8_t)(1u << random_below(8));
            break;
        case 1:
            if (len)
                b[at] = interesting[random_below(sizeof interesting)];
            break;
        case 2:                                 /* cut out */
            if (at + span < len) {
                memmove(b + at, b + at + span, len - at - span);
                len -= span;
            }
            break;
        case 3:                                 /* repeat a piece */
            if (at + span < len && len + span <= INPUT_BYTES) {
                memmove(b + at + span, b + at, len - at);
                len += span;
            }
            break;
        case 4:                                 /* a piece of another input */
            if (len) {
                size_t other = random_below((uint32_t)ninputs);
                size_t from = inputs[other].len ? random_below((uint32_t)inputs[other].len) : 0;
                size_t take = inputs[other].len - from;
                take = take < span ? take : span;
                take = take < len - at ? take : len - at;
                memcpy(b + at, inputs[other].bytes + from, take);
            }
            break;
        default:
            len = len ? 1 + random_below((uint32_t)len) : 0;
        }
    }
    return len;
}

int main(int argc, char **argv)
{
    uint32_t runs = 0;
    uint8_t *bytes = malloc(INPUT_BYTES);

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-runs=", 6) == 0)
            runs = (uint32_t)strtoul(argv[i] + 6, NULL, 10);
        else if (strncmp(argv[i], "-seed=", 6) == 0)
            state = strtoull(argv[i] + 6, NULL, 10);
        else
            load(argv[i]);
    }
    if (!ninputs) {
        fprintf(stderr, "no inputs: a corpus is needed\n");
        return 2;
    }
    for (size_t i = 0; i < ninputs; i++)
        LLVMFuzzerTestOneInput(inputs[i].bytes, inputs[i].len);
    for (uint32_t i = 0; i < runs; i++) {
        size_t from = random_below((uint32_t)ninputs);
        size_t len = inputs[from].len;
        memcpy(bytes, inputs[from].bytes, len);
        len = mutate(bytes, len);
        /* An exact copy, so that the sanitizer sees one byte too far. */
        uint8_t *exact = malloc(len ? len : 1);
        memcpy(exact, bytes, len);
        LLVMFuzzerTestOneInput(exact, len);
        free(exact);
    }
    printf("%zu inputs and %u mutations\n", ninputs, runs);
    for (size_t i = 0; i < ninputs; i++)
        free(inputs[i].bytes);
    free(bytes);
    return 0;
}
