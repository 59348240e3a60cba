/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes damaged product queue files. The input is a list of changes to the tables of a good file:
 * (offset u16 big-endian, value u8) each. Either pq_open() refuses the file or the queue works.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "queue/pq_impl.h"

enum { DATA_BYTES = 4096, SLOTS = 3 };

static int file = -1;
static char path[40];
static uint8_t *image;
static struct pq_layout layout;

static void insert(struct pq *q, unsigned n, uint32_t size)
{
    static const uint8_t zeros[DATA_BYTES];
    struct pq_info info = {.size = size};
    memcpy(info.signature.bytes, &n, sizeof n);
    pq_insert(q, &info, zeros);
}

static void make_good_file(void)
{
    char made[] = "/tmp/fuzz-pqfile-XXXXXX";
    int fd = mkstemp(made);
    struct pq *q;
    if (fd < 0 || pq_create(made, DATA_BYTES, SLOTS, true) || pq_open(made, true, &q) ||
        !pq_layout_of(DATA_BYTES, SLOTS, &layout))
        abort();
    close(fd);
    for (unsigned n = 0; n < 5; n++)
        insert(q, n, 500);
    pq_close(q);
    image = malloc(layout.file_bytes);
    FILE *f = fopen(made, "rb");
    if (!f || !image || fread(image, 1, layout.file_bytes, f) != layout.file_bytes)
        abort();
    fclose(f);
    unlink(made);
    file = memfd_create("queue", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (file < 0 || ftruncate(file, (off_t)layout.file_bytes))
        abort();
    /* Once opened, it is a known file and not a copy: then damage is not repaired. */
    if (pwrite(file, image, layout.file_bytes, 0) < 0 || pq_open(path, true, &q))
        abort();
    pq_close(q);
    if (pread(file, image, layout.file_bytes, 0) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pq_view held = {0};
    if (file < 0)
        make_good_file();
    if (pwrite(file, image, layout.file_bytes, 0) < 0)
        abort();
    for (; bytes >= 3; bytes -= 3, data += 3) {
        uint64_t at = layout.slots + (data[0] * 256u + data[1]) % (layout.scratch - layout.slots);
        if (pwrite(file, data + 2, 1, (off_t)at) != 1)
            abort();
    }
    struct pq *q;
    if (pq_open(path, true, &q))
        return 0;
    uint64_t after = 0;
    unsigned products = 0;
    volatile unsigned sum = 0;
    struct pq_view v;
    while (pq_next(q, after, &v) == PQ_OK) {
        if (v.seq <= after || ++products > SLOTS)
            abort();
        after = v.seq;
        for (uint32_t i = 0; i < v.info.size; i++)
            sum += v.data[i];
        pq_release(q, &v);
    }
    (void)sum;
    pq_next(q, 0, &held);
    for (unsigned n = 0; n < 30; n++)
        insert(q, n, 200 + 90 * n);
    pq_release(q, &held);
    if (pq_check(q))
        abort();
    pq_close(q);
    return 0;
}
