/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "batch.h"

enum { LINK = 3 };
static uint8_t *batch;

static int set_up(void **state)
{
    (void)state;
    batch = calloc(1, BATCH_BYTES);
    return batch ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(batch);
    return 0;
}

static void put(int64_t sent_ns, const char *text)
{
    uint8_t *space = batch_add(batch, LINK, sent_ns, strlen(text));
    assert_non_null(space);
    memcpy(space, text, strlen(text));
}

static void test_frames_come_back_in_order_with_their_times(void **state)
{
    struct batch_frame frame;
    size_t offset = 0;
    (void)state;
    batch_begin(batch, 7);
    put(1000, "abc");
    put(1256, "12345678");
    put(1256, "");
    assert_true(batch_is(batch, batch_size(batch), 7));
    assert_true(batch_next(batch, &offset, &frame));
    assert_int_equal(frame.sent_ns, 1000);
    assert_int_equal(frame.link, LINK);
    assert_int_equal(frame.n_bytes, 3);
    assert_memory_equal(frame.bytes, "abc", 3);
    assert_true(batch_next(batch, &offset, &frame));
    assert_int_equal(frame.sent_ns, 1256);
    assert_memory_equal(frame.bytes, "12345678", 8);
    assert_true(batch_next(batch, &offset, &frame));
    assert_int_equal(frame.n_bytes, 0);
    assert_false(batch_next(batch, &offset, &frame));
}

static void test_a_batch_without_frames(void **state)
{
    struct batch_frame frame;
    size_t offset = 0;
    struct batch_head head;
    (void)state;
    batch_begin(batch, 8);
    assert_int_equal(batch_size(batch), sizeof head);
    assert_true(batch_is(batch, sizeof head, 8));
    assert_false(batch_next(batch, &offset, &frame));
    memcpy(&head, batch, sizeof head);
    assert_int_equal(head.is_last, 0);
    batch_close(batch);
    memcpy(&head, batch, sizeof head);
    assert_int_equal(head.is_last, 1);
    assert_true(batch_is(batch, sizeof head, 8));
}

/* Each page may belong to this batch or, if the guest's kernel cached it, to an older one. */
static void test_what_is_left_of_an_older_batch_is_found(void **state)
{
    (void)state;
    batch_begin(batch, 5);
    put(10, "the first frame of batch 5");
    put(20, "the second frame of batch 5");
    const size_t size = batch_size(batch);
    uint8_t *old = malloc(size);
    assert_non_null(old);
    memcpy(old, batch, size);
    batch_begin(batch, 7);
    put(10, "the first frame of batch 7");
    put(20, "the second frame of batch 7");
    assert_true(batch_is(batch, size, 7));
    assert_false(batch_is(batch, size, 5));
    assert_false(batch_is(old, size, 7));
    const size_t second = sizeof(struct batch_head) + sizeof(struct batch_record) + 32;
    memcpy(batch + second, old + second, size - second);
    assert_false(batch_is(batch, size, 7));
    free(old);
}

static void test_lengths_that_lead_out_are_no_batch(void **state)
{
    struct batch_head head;
    struct batch_record record;
    (void)state;
    batch_begin(batch, 3);
    put(10, "abc");
    const size_t size = batch_size(batch);
    assert_false(batch_is(batch, sizeof head - 1, 3));
    assert_false(batch_is(batch, size - 1, 3));
    memcpy(&record, batch + sizeof head, sizeof record);
    record.n_bytes = 9;
    memcpy(batch + sizeof head, &record, sizeof record);
    assert_false(batch_is(batch, size, 3));
    record.n_bytes = UINT32_MAX;
    memcpy(batch + sizeof head, &record, sizeof record);
    assert_false(batch_is(batch, size, 3));
    record.n_bytes = 3;
    memcpy(batch + sizeof head, &record, sizeof record);
    assert_true(batch_is(batch, size, 3));
    memcpy(&head, batch, sizeof head);
    head.n_bytes -= 8; /* ends within the frame */
    memcpy(batch, &head, sizeof head);
    assert_false(batch_is(batch, size, 3));
    head.n_bytes = 8; /* ends within a record */
    memcpy(batch, &head, sizeof head);
    assert_false(batch_is(batch, size, 3));
}

static void test_a_full_batch_takes_no_more(void **state)
{
    size_t n = 0;
    (void)state;
    batch_begin(batch, 1);
    while (batch_add(batch, LINK, 1, BATCH_FRAME_BYTES))
        n++;
    assert_int_equal(n, (BATCH_BYTES - sizeof(struct batch_head)) /
                            (sizeof(struct batch_record) + BATCH_FRAME_BYTES + 1));
    assert_true(batch_is(batch, batch_size(batch), 1));
    batch_begin(batch, 2);
    assert_null(batch_add(batch, LINK, 1, BATCH_FRAME_BYTES + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_come_back_in_order_with_their_times),
        cmocka_unit_test(test_a_batch_without_frames),
        cmocka_unit_test(test_what_is_left_of_an_older_batch_is_found),
        cmocka_unit_test(test_lengths_that_lead_out_are_no_batch),
        cmocka_unit_test(test_a_full_batch_takes_no_more),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
