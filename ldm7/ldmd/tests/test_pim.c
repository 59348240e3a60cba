/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ldmd/pim.h"
#include "ldmd/session.h"

static char dir[] = "/tmp/ldmd-pim-XXXXXX";
static char path[64];

static struct pq_signature sig(uint32_t i)
{
    struct pq_signature s = {{0}};

    memcpy(s.bytes, &i, sizeof i);
    return s;
}

static void put(struct pim *p, uint32_t index)
{
    struct pq_signature s = sig(index);

    assert_int_equal(pim_put(p, index, &s), 0);
}

static void assert_has(struct pim *p, uint32_t index)
{
    struct pq_signature got, want = sig(index);

    assert_true(pim_get(p, index, &got));
    assert_memory_equal(&got, &want, sizeof want);
}

static void paths(void **state)
{
    (void)state;
    char out[64];
    assert_true(pim_path(out, sizeof out, "/q/ldm.pq", "NGRID"));
    assert_string_equal(out, "/q/NGRID.pim");
    assert_true(pim_path(out, sizeof out, "ldm.pq", "EXP"));
    assert_string_equal(out, "./EXP.pim");
    assert_false(pim_path(out, 8, "/q/ldm.pq", "NGRID"));
    assert_true(session_path(out, sizeof out, "/q/ldm.pq", "10.0.0.1", 388, "EXP"));
    assert_string_equal(out, "/q/10.0.0.1:388_EXP.yaml");
    assert_false(session_path(out, sizeof out, "/q/ldm.pq", "../x", 388, "EXP"));
}

static void wraps_and_survives(void **state)
{
    bool reset = false;
    struct pim *w = pim_open(path, true, 4, &reset);

    (void)state;
    assert_non_null(w);
    assert_true(reset);
    assert_int_equal(pim_next_index(w), 0);
    struct pim *r = pim_open(path, false, 0, NULL);
    assert_non_null(r);
    struct pq_signature got;
    assert_false(pim_get(r, 0, &got));
    for (uint32_t i = 0; i < 6; i++)
        put(w, i);
    assert_false(pim_get(r, 1, &got));
    for (uint32_t i = 2; i < 6; i++)
        assert_has(r, i);
    assert_false(pim_get(r, 6, &got));
    pim_close(w);
    /* Layout of LDM-6.13.17: count 4, oldest at position 2, with index 2; 16-byte entries. */
    int fd = open(path, O_RDONLY);
    uint8_t head[20];
    assert_int_equal(read(fd, head, sizeof head), 20);
    assert_int_equal(lseek(fd, 0, SEEK_END), 20 + 4 * 16);
    close(fd);
    uint64_t count;
    memcpy(&count, head, 8);
    uint64_t oldest;
    memcpy(&oldest, head + 8, 8);
    uint32_t index;
    memcpy(&index, head + 16, 4);
    assert_int_equal(count, 4);
    assert_int_equal(oldest, 2);
    assert_int_equal(index, 2);
    /* With another capacity the newest entries are kept. */
    w = pim_open(path, true, 3, &reset);
    assert_false(reset);
    assert_int_equal(pim_next_index(w), 6);
    assert_false(pim_get(r, 2, &got));
    assert_has(r, 3);
    pim_close(w);
    w = pim_open(path, true, 8, &reset);
    assert_false(reset);
    for (uint32_t i = 6; i < 11; i++)
        put(w, i);
    for (uint32_t i = 3; i < 11; i++)
        assert_has(r, i);
    put(w, 100); /* a gap: starts again there */
    assert_has(r, 100);
    assert_false(pim_get(r, 10, &got));
    assert_int_equal(pim_next_index(r), 101);
    put(w, UINT32_MAX);
    put(w, 0); /* indices wrap modulo 2^32 */
    assert_has(r, UINT32_MAX);
    assert_has(r, 0);
    pim_close(w);
    pim_close(r);
}

static void damaged(void **state)
{
    bool reset = false;
    int fd = open(path, O_WRONLY | O_TRUNC);

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(write(fd, "\xff", 1), 1);
    close(fd);
    struct pim *p = pim_open(path, false, 0, NULL);
    assert_non_null(p);
    struct pq_signature got;
    assert_false(pim_get(p, 0, &got));
    pim_close(p);
    p = pim_open(path, true, 4, &reset);
    assert_non_null(p);
    assert_true(reset);
    assert_int_equal(pim_next_index(p), 0);
    pim_close(p);
}

static void sessions(void **state)
{
    struct session s = {0}, t = {0};
    struct pq_signature a = sig(0x01020304);

    (void)state;
    char file[80];
    snprintf(file, sizeof file, "%s/s.yaml", dir);
    session_load(&s, file);
    assert_false(s.has_last);
    session_set_last(&s, &a);
    assert_true(session_add_missed(&s, 5));
    assert_true(session_add_missed(&s, UINT32_MAX));
    assert_true(session_add_missed(&s, 7));
    assert_false(session_add_missed(&s, 5));
    assert_true(session_remove_missed(&s, 5));
    assert_false(session_remove_missed(&s, 5));
    assert_int_equal(session_save(&s, file), 0);
    session_load(&t, file);
    assert_true(t.has_last);
    assert_memory_equal(&t.last, &a, sizeof a);
    assert_int_equal(t.nmissed, 2);
    assert_int_equal(t.missed[0], UINT32_MAX);
    assert_int_equal(t.missed[1], 7);
    session_free(&s);
    session_free(&t);
    unlink(file);
}

/* Whatever the order in which products are missed and fetched, over the wrap too. */
static void missed_products_are_ordered_by_age(void **state)
{
    static const uint32_t order[] = {3, UINT32_MAX - 1, 0, UINT32_MAX, 9, 1, UINT32_MAX - 4};
    static const uint32_t sorted[] = {
        UINT32_MAX - 4, UINT32_MAX - 1, UINT32_MAX, 0, 1, 3, 9,
    };
    struct session s = {0};

    (void)state;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        assert_true(session_add_missed(&s, order[i]));
    assert_int_equal(s.nmissed, sizeof sorted / sizeof *sorted);
    assert_memory_equal(s.missed, sorted, sizeof sorted);
    assert_true(session_has_missed(&s, UINT32_MAX));
    assert_false(session_has_missed(&s, 2));
    assert_true(session_remove_missed(&s, UINT32_MAX));
    assert_false(session_has_missed(&s, UINT32_MAX));
    assert_false(session_add_missed(&s, 9));
    assert_int_equal(s.nmissed, 6);
    /* Half of all numbers away: the file was damaged, and what it named has no order. */
    assert_true(session_add_missed(&s, 0x80000005));
    assert_int_equal(s.nmissed, 1);
    assert_int_equal(s.dropped, 6);
    session_free(&s);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/EXP.pim", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static void taken_back(void **state)
{
    struct pim *w = pim_open(path, true, 8, NULL);

    (void)state;
    assert_non_null(w);
    put(w, 7);
    put(w, 8);
    pim_take_back(w, 7); /* not the newest: no effect */
    assert_int_equal(pim_next_index(w), 9);
    pim_take_back(w, 8);
    assert_int_equal(pim_next_index(w), 8);
    struct pq_signature got;
    assert_false(pim_get(w, 8, &got));
    assert_has(w, 7);
    pim_close(w);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),    cmocka_unit_test(wraps_and_survives),
        cmocka_unit_test(damaged),  cmocka_unit_test(taken_back),
        cmocka_unit_test(sessions), cmocka_unit_test(missed_products_are_ordered_by_age),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
