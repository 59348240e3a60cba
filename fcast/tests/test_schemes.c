/* SPDX-License-Identifier: Apache-2.0
 *
 * fcast-recv's storage schemes on a real disk: the object is correct, the accesses are those of the
 * report, and whichever write a receiver is killed at, the next one continues with what was stored.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../tools/place.h"
#include "seed.h"
#include "sim/random.h"
#include "storage.h"

enum {
    E = 512,
    K = 20,
    BYTES = 700 * E + 5,
    REPAIR_ROOM = 1 << 20,
    CROWD = 4,
    LIFE = 4000, /* datagrams */
};

static uint8_t object[BYTES], repair[REPAIR_ROOM], got[BYTES];

/* ------------------------------------------------------------------ a process that is killed */

static uint64_t writes, kill_at = UINT64_MAX;

ssize_t __real_pwrite64(int fd, const void *bytes, size_t len, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off_t at);

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off_t at)
{
    if (writes++ == kill_at) {
        ssize_t n = __real_pwrite64(fd, bytes, len / 2, at); /* only part of it */
        raise(SIGKILL);
        return n;
    }
    return __real_pwrite64(fd, bytes, len, at);
}

/* ------------------------------------------------------------------ a sender and a receiver */

static int read_bytes(void *ctx, uint64_t at, void *bytes, size_t len)
{
    memcpy(bytes, (const uint8_t *)ctx + at, len);
    return 0;
}

static int write_bytes(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    assert_true(at + len <= REPAIR_ROOM);
    memcpy((uint8_t *)ctx + at, bytes, len);
    return 0;
}

struct life {
    struct places places;
    struct fcast_receiver *core;
    unsigned stored;
};

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    return place_open(&((struct life *)ctx)->places, source, tsi, toi, fti, out);
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    struct life *l = ctx;

    (void)toi;
    assert_string_equal(meta->location, "object"); /* no digest: wrong bytes must show up here */
    assert_int_equal(bytes, BYTES);
    assert_int_equal(place_read(place, at, got, BYTES), 0);
    assert_memory_equal(got, object, BYTES);
    place_close(&l->places, place, true, false);
    l->stored++;
    return FCAST_STORED;
}

static void drop(void *ctx, uint64_t toi, void *place, bool keep)
{
    (void)toi;
    place_close(&((struct life *)ctx)->places, place, false, keep);
}

struct setting {
    enum fcast_protocol protocol;
    enum fcast_order order;
    struct keeping keeping;
};

static struct setting with(int storage)
{
    return (struct setting){
        .protocol = storage % 2 ? FCAST_PROTOCOL_SEED : FCAST_PROTOCOL_FCAST,
        .order = FCAST_SHUFFLE,
        .keeping = {.storage = storage, .crowd = CROWD, .memory_bytes = 4 << 20}};
}

static void start(struct life *l, const char *dir, const struct setting *s)
{
    const struct fcast_receiver_config cfg = {
        .protocol = s->protocol, .ctx = l, .begin = begin, .done = done, .drop = drop};
    int fd = open(dir, O_RDONLY | O_DIRECTORY);

    l->stored = 0;
    assert_int_equal(places_open(&l->places, fd), 0);
    close(fd);
    l->places.keeping = s->keeping;
    l->core = fcast_receiver_new(&cfg);
    assert_non_null(l->core);
}

static void end(struct life *l)
{
    fcast_receiver_free(l->core);
    places_close(&l->places);
    close(l->places.dir_fd);
}

static struct fcast_sender *carousel(const struct setting *setting)
{
    const struct fcast_sender_config cfg = {.tsi = 1,
                                            .protocol = setting->protocol,
                                            .fec = FCAST_RS,
                                            .symbol_bytes = E,
                                            .k = K,
                                            .overhead = 1,
                                            .order = setting->order,
                                            .random = 3,
                                            .repair = {repair, read_bytes, write_bytes}};
    const struct fcast_meta meta = {.location = "object"};
    const struct fcast_store source = {object, read_bytes, NULL};
    struct fcast_sender *s = fcast_sender_new(&cfg);
    uint64_t toi;

    assert_non_null(s);
    assert_int_equal(fcast_sender_add(s, &meta, BYTES, &source, &toi), 0);
    assert_int_equal(fcast_sender_commit(s), 0);
    return s;
}

/* Runs a receiver until the object is complete. Every `lost`-th datagram is lost; 0: none. */
static void live(struct life *l, const char *dir, const struct setting *setting, unsigned lost)
{
    static uint8_t bytes[FCAST_DATAGRAM_MAX];
    struct fcast_sender *s = carousel(setting);

    start(l, dir, setting);
    for (unsigned i = 1; i <= LIFE && !l->stored; i++) {
        size_t len = fcast_sender_next(s, bytes);
        if (!lost || i % lost)
            fcast_receiver_datagram(l->core, 1, bytes, len, i);
    }
    fcast_sender_free(s);
}

static void make_dir(char dir[])
{
    strcpy(dir, "/var/tmp/fcast-schemes-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void remove_dir(const char *dir)
{
    char command[64];

    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* ------------------------------------------------------------------ tests */

/* Without loss, the accesses are those of the report's Table 1; with loss, the decoded data are
 * correct. */
static void test_accesses(void **state)
{
    (void)state;
    enum { MEMORY = 1, RECEIVE_ORDER, GROUP_AREA, CROWD_BUCKET, CROWD_POOL };
    for (int storage = STORAGE_IN_PLACE; storage <= CROWD_POOL; storage++)
        for (unsigned lost = 0; lost < 4; lost += 3) {
            char dir[64];
            struct life l;
            struct setting s = with(storage);
            if (storage == CROWD_BUCKET)
                s.order = FCAST_SEQUENTIAL;
            make_dir(dir);
            live(&l, dir, &s, lost);
            assert_int_equal(l.stored, 1);
            const struct disk_counts *one = &l.places.receiving, *two = &l.places.sorting;
            /* The object with its header or trailer, in whole groups. */
            uint32_t blocks = s.protocol == FCAST_PROTOCOL_SEED ? 720 : 701, groups = 36;
            if (s.protocol == FCAST_PROTOCOL_SEED)
                blocks = fcast_choose_k(701, K, NULL, NULL) * groups;
            if (storage == MEMORY) {
                assert_int_equal(one->writes + two->reads, 0);
                assert_int_equal(two->seeks, 0);
                assert_int_equal(l.places.peak_blocks, blocks);
            } else if (storage != STORAGE_IN_PLACE) {
                assert_int_equal(one->written_bytes, blocks * E);
                assert_int_equal(two->read_bytes, blocks * E);
            }
            if (storage != STORAGE_IN_PLACE)
                assert_int_equal(two->written_bytes, blocks * E);
            if (storage == RECEIVE_ORDER)
                assert_int_equal(one->seeks, 0);
            if (storage == GROUP_AREA)
                assert_int_equal(one->writes, blocks);
            if (storage == CROWD_BUCKET && !lost) {
                assert_int_equal(one->writes, (blocks + CROWD - 1) / CROWD);
                assert_int_equal(two->reads, groups / CROWD);
            }
            if (storage == CROWD_POOL)
                assert_in_range(one->writes, blocks / CROWD, blocks / CROWD * 6 / 5);
            end(&l);
            remove_dir(dir);
        }
}

/* Kills the receiver at a write, while symbols arrive or while they are sorted. */
static void die_at(int storage, uint64_t at, uint64_t *restored, bool *died)
{
    char dir[64];
    struct life l;
    const struct setting s = with(storage);
    int status;

    make_dir(dir);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        kill_at = at;
        writes = 0;
        live(&l, dir, &s, 3);
        _exit(0); /* it had finished before */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (*died) {
        struct fcast_receiver_stats st;
        live(&l, dir, &s, 3);
        assert_int_equal(l.stored, 1);
        assert_int_equal(l.places.error, 0);
        fcast_receiver_get_stats(l.core, &st);
        *restored = st.restored;
        end(&l);
    }
    remove_dir(dir);
}

static void test_killed_at_a_write(void **state)
{
    (void)state;
    for (int storage = STORAGE_IN_PLACE; storage <= 5; storage++) {
        uint64_t restored, most = 0, deaths = 0;
        bool died = true;
        /* In place, symbols are gathered, so there are fewer writes. */
        uint64_t step = storage == STORAGE_IN_PLACE ? 1 : 3;
        for (uint64_t at = step; died && at < 3000; at += step + step * at / 9) {
            die_at(storage, at, &restored, &died);
            deaths += died;
            most = died && restored > most ? restored : most;
        }
        assert_true(deaths >= 5);
        /* Notes are written every 512 symbols. Whatever is only in memory starts over. */
        if (storage == 1 + FCAST_IN_MEMORY)
            assert_int_equal(most, 0);
        else
            assert_true(most >= 512);
    }
}

/* A receiver that ends normally also keeps what waits in memory. */
static void test_ended_in_the_middle(void **state)
{
    (void)state;
    static uint8_t bytes[FCAST_DATAGRAM_MAX];
    for (int storage = 2; storage <= 5; storage++) {
        char dir[64];
        struct life l;
        const struct setting s = with(storage);
        struct fcast_receiver_stats st;
        struct fcast_sender *sender = carousel(&s);
        make_dir(dir);
        start(&l, dir, &s);
        for (unsigned i = 1; i <= 300; i++)
            fcast_receiver_datagram(l.core, 1, bytes, fcast_sender_next(sender, bytes), i);
        fcast_receiver_get_stats(l.core, &st);
        uint64_t useful = st.useful;
        end(&l);
        fcast_sender_free(sender);
        live(&l, dir, &s, 0);
        fcast_receiver_get_stats(l.core, &st);
        assert_int_equal(l.stored, 1);
        assert_in_range(st.restored, useful - 2, useful); /* without the descriptor's */
        end(&l);
        remove_dir(dir);
    }
}

static void test_direct(void **state)
{
    (void)state;
    char dir[64];
    struct life l;
    struct setting s = with(5);
    s.keeping.is_direct = true;
    make_dir(dir);
    live(&l, dir, &s, 3);
    bool has_none = !l.stored;
    if (has_none) /* like tmpfs */
        print_message("skipped: no direct I/O in /var/tmp: %s\n", strerror(errno));
    end(&l);
    if (!has_none) { /* in place, with a last symbol that is short */
        s = with(STORAGE_IN_PLACE);
        s.keeping.is_direct = true;
        live(&l, dir, &s, 3);
        assert_int_equal(l.stored, 1);
        end(&l);
        /* zeroes for each of the 36 groups first */
        s = with(1 + FCAST_GROUP_AREA);
        s.keeping.is_direct = true;
        live(&l, dir, &s, 3);
        assert_int_equal(l.stored, 1);
        assert_int_equal(l.places.receiving.writes, 720 + 36);
        assert_int_equal(l.places.receiving.written_bytes, 2 * 720 * E);
        end(&l);
    }
    remove_dir(dir);
    if (has_none)
        skip();
}

static void test_what_is_refused(void **state)
{
    (void)state;
    char dir[64];
    struct life l;
    struct setting s = with(1);
    struct fcast_place place;
    make_dir(dir);
    start(&l, dir, &s);
    struct fcast_fti fti = {
        .fec = FCAST_RS, .length = 8 << 20, .symbol_bytes = E, .block_max = K, .n_max = 40};
    assert_int_equal(place_open(&l.places, 1, 1, 1, &fti, &place), FCAST_REFUSE);
    assert_non_null(strstr(l.places.why, "--memory"));
    fti.fec = FCAST_TRIANGLE;
    assert_int_equal(place_open(&l.places, 1, 1, 1, &fti, &place), FCAST_REFUSE);
    assert_non_null(strstr(l.places.why, "Reed-Solomon"));
    l.places.keeping.is_direct = true;
    fti.fec = FCAST_RS;
    fti.symbol_bytes = 1436;
    assert_int_equal(place_open(&l.places, 1, 1, 1, &fti, &place), FCAST_REFUSE);
    assert_non_null(strstr(l.places.why, "512"));
    assert_int_equal(l.places.memory_used, 0);
    /* A sender that keeps announcing objects leaves no files behind. */
    char command[128];
    snprintf(command, sizeof command, "! find %s/.fcast -type f | grep -E 'notes|data|repair'",
             dir);
    assert_int_equal(system(command), 0);
    end(&l);
    remove_dir(dir);
}

int main(void)
{
    uint64_t random = 5;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accesses),
        cmocka_unit_test(test_killed_at_a_write),
        cmocka_unit_test(test_ended_in_the_middle),
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_what_is_refused),
    };

    for (unsigned i = 0; i < BYTES; i++)
        object[i] = (uint8_t)tp_random_bits(&random);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
