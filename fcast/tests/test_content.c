/* SPDX-License-Identifier: Apache-2.0
 *
 * Files sent as gzip are unpacked, and a decompression bomb is refused before it grows large.
 */
#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../tools/content.h"
#include "../tools/gzip.h"
#include "file_at.h"

enum {
    BYTES = 700000,
    BOMB = 64 << 20,
    MOST = 1 << 20,
    HEAD = 3 /* HEAD: bytes before the data */
};

static uint8_t text[BYTES], packed[BYTES], got[BYTES];
static uint64_t packed_bytes;

static int new_file(void)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    return fileno(f);
}

static uint64_t size_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_size;
}

static int read_packed(void *ctx, uint64_t at, void *bytes, size_t len)
{
    memcpy(bytes, (const uint8_t *)ctx + at - HEAD, len);
    return 0;
}

/* Returns what becomes of these packed bytes. */
static enum content copy(struct content_job *job, const struct fcast_meta *meta, uint64_t bytes)
{
    *job = (struct content_job){.read = read_packed,
                                .ctx = packed,
                                .at = HEAD,
                                .bytes = bytes,
                                .meta = meta,
                                .most_bytes = MOST,
                                .fd = new_file()};
    return content_copy(job);
}

static struct fcast_meta meta_of_text(void)
{
    struct fcast_meta m = {
        .encoding = "gzip", .has_length = true, .length = BYTES, .has_digest = true};
    unsigned len;
    assert_int_equal(EVP_Digest(text, BYTES, m.digest, &len, EVP_sha256(), NULL), 1);
    return m;
}

static int setup(void **state)
{
    (void)state;
    for (unsigned i = 0; i < BYTES; i++)
        text[i] = (uint8_t)(i * 2654435761u >> 28);
    int in = new_file(), out = new_file();
    if (file_write_at(in, 0, text, BYTES) < 0 || gzip_pack(in, BYTES, out, &packed_bytes) < 0)
        return -1;
    return packed_bytes < BYTES ? file_read_at(out, 0, packed, packed_bytes) : -1;
}

static void test_unpacked(void **state)
{
    (void)state;
    const struct fcast_meta meta = meta_of_text();
    struct content_job job;
    assert_int_equal(copy(&job, &meta, packed_bytes), CONTENT_GOOD);
    assert_int_equal(job.written, BYTES);
    assert_int_equal(file_read_at(job.fd, 0, got, BYTES), 0);
    assert_memory_equal(got, text, BYTES);
    /* Two members make one file; without a length, only the bound applies. */
    struct fcast_meta open = {.encoding = "gzip"};
    memcpy(packed + packed_bytes, packed, packed_bytes);
    assert_int_equal(copy(&job, &open, 2 * packed_bytes), CONTENT_REFUSED);
    assert_non_null(strstr(job.why, "--max-unpacked"));
    assert_in_range(size_of(job.fd), BYTES, MOST);
    /* Data without an encoding are copied unchanged. */
    struct fcast_meta plain = {.has_length = true, .length = 9};
    assert_int_equal(copy(&job, &plain, packed_bytes), CONTENT_GOOD);
    assert_int_equal(job.written, packed_bytes);
}

static void test_what_is_wrong(void **state)
{
    (void)state;
    struct fcast_meta meta = meta_of_text();
    struct content_job job;
    meta.digest[5] ^= 1;
    assert_int_equal(copy(&job, &meta, packed_bytes), CONTENT_WRONG);
    meta.length = BYTES + 1;
    assert_int_equal(copy(&job, &meta, packed_bytes), CONTENT_REFUSED);
    assert_non_null(strstr(job.why, "Content-Length is 700001"));
    meta.length = BYTES - 1;
    assert_int_equal(copy(&job, &meta, packed_bytes), CONTENT_REFUSED);
    assert_in_range(size_of(job.fd), 0, BYTES - 1);
    meta = meta_of_text();
    /* Truncated, followed by junk, with a wrong bit, empty. */
    assert_int_equal(copy(&job, &meta, packed_bytes - 1), CONTENT_REFUSED);
    packed[packed_bytes] = 'x';
    assert_int_equal(copy(&job, &meta, packed_bytes + 1), CONTENT_REFUSED);
    packed[packed_bytes / 2] ^= 4;
    assert_int_equal(copy(&job, &meta, packed_bytes), CONTENT_REFUSED);
    packed[packed_bytes / 2] ^= 4;
    assert_int_equal(copy(&job, &meta, 0), CONTENT_REFUSED);
}

/* 64 MiB of zeroes packed into 64 KiB: whatever the metadata say, no more than the bound is
 * written. */
static void test_a_bomb(void **state)
{
    (void)state;
    int in = new_file(), out = new_file();
    uint64_t bytes;
    assert_int_equal(ftruncate(in, BOMB), 0);
    assert_int_equal(gzip_pack(in, BOMB, out, &bytes), 0);
    assert_in_range(bytes, 1, 1 << 17);
    assert_int_equal(file_read_at(out, 0, packed, bytes), 0);
    const struct fcast_meta says[] = {{.encoding = "gzip"},
                                      {.encoding = "gzip", .has_length = true, .length = 100},
                                      {.encoding = "gzip", .has_length = true, .length = BOMB}};
    const uint64_t most[] = {MOST, 100, 0};
    for (int i = 0; i < 3; i++) {
        struct content_job job;
        assert_int_equal(copy(&job, &says[i], bytes), CONTENT_REFUSED);
        assert_in_range(size_of(job.fd), 0, most[i]);
        assert_non_null(strstr(job.why, i == 1 ? "Content-Length" : "--max-unpacked"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_unpacked, setup),
        cmocka_unit_test_setup(test_what_is_wrong, setup),
        cmocka_unit_test(test_a_bomb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
