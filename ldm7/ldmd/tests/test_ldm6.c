/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of LDM6 that decide: what is taken (intake), the shift between upstreams, the resume
 * file, one feed per address. The rules and the file's line are those of LDM-6.15.0.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/digest.h"
#include "common/log.h"
#include "ldmd/autoshift.h"
#include "ldmd/feeds.h"
#include "ldmd/intake.h"
#include "ldmd/resume.h"

#define S 1000000000ull

/* ------------------------------------------------------------------ shift */

static void shift_alone(void **state)
{
    (void)state;
    struct autoshift a;
    autoshift_init(&a, 1, 0, 0);
    for (uint64_t t = 0; t < 1000; t++)
        assert_false(autoshift_product(&a, false, t * S));
    assert_true(a.primary);
}

/* N = 3: switches from primary to alternate if accepted <= rejected / 2, and back if accepted >=
 * rejected / 2; this is checked when 60 s have passed and a product comes. */
static void shift_of_three(void **state)
{
    (void)state;
    struct autoshift a;
    autoshift_init(&a, 3, 0, 0);
    assert_true(a.primary);
    for (int i = 0; i < 10; i++)
        assert_false(autoshift_product(&a, false, 59 * S));
    for (int i = 0; i < 5; i++)
        assert_false(autoshift_product(&a, true, 59 * S));
    assert_false(autoshift_product(&a, true, 60 * S)); /* 6 > 10 / 2: stays, counts from 0 */
    assert_false(autoshift_product(&a, true, 61 * S));
    assert_false(autoshift_product(&a, false, 119 * S));
    assert_true(autoshift_product(&a, false, 120 * S)); /* 1 <= 2 / 2 */
    assert_false(a.primary);
    assert_false(autoshift_product(&a, false, 179 * S));
    assert_false(autoshift_product(&a, false, 180 * S)); /* 0 < 2 / 2: stays */
    assert_true(autoshift_product(&a, true, 240 * S));   /* 1 >= 0 */
    assert_true(a.primary);
    autoshift_init(&a, 3, 1, 0);
    assert_false(a.primary);
}

/* ------------------------------------------------------------------ resume */

static const struct pq_info noted = {
    .creation = {1795217958, 533719},
    .origin = "t6up.test_v_10.97.7.1",
    .feedtype = 0x40000000,
    .ident = "t6.3",
    .size = 450000,
    .signature = {{0xa5, 0x32, 0x01, 0xa8, 0x7e, 0x8d, 0x2a, 0x3b, 0x81, 0x0e, 0x6f, 0x59, 0x81,
                   0xc7, 0x80, 0xfe}}};
#define NOTED                                                                   \
    "{20261120T233918.533719,EXP,0,{21,t6up.test_v_10.97.7.1},450000,{4,t6.3}," \
    "a53201a87e8d2a3b810e6f5981c780fe}"

static void assert_same_info(const struct pq_info *a, const struct pq_info *b)
{
    assert_int_equal(a->creation.tv_sec, b->creation.tv_sec);
    assert_int_equal(a->creation.tv_usec, b->creation.tv_usec);
    assert_string_equal(a->origin, b->origin);
    assert_string_equal(a->ident, b->ident);
    assert_int_equal(a->feedtype, b->feedtype);
    assert_int_equal(a->seqno, b->seqno);
    assert_int_equal(a->size, b->size);
    assert_memory_equal(&a->signature, &b->signature, sizeof a->signature);
}

static void resume_line(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "{20261120T233918.533719,EXP,0,{21,short},450000,{4,t6.3},a53201a87e8d2a3b810e6f5981c780fe}",
        "{20261120T233918.533719,EXPO,0,{1,o},5,{1,i},a53201a87e8d2a3b810e6f5981c780fe}",
        "{20261120T233918.1533719,EXP,0,{1,o},5,{1,i},a53201a87e8d2a3b810e6f5981c780fe}",
        "{20261120T233918.533719,EXP,0,{1,o},4294967296,{1,i},a53201a87e8d2a3b810e6f5981c780fe}",
        "{20261120T233918.533719,EXP,0,{99999999999,o},5,{1,i},a53201a87e8d2a3b810e6f5981c780fe}",
        "{20261120T233918.533719,EXP,0,{1,o},5,{1,i},a53201a87e8d2a3b810e6f5981c780f}",
        "{20261120T233918.533719,EXP,0,{1,o},5,{1,i},a53201a87e8d2a3b810e6f5981c780feX",
    };
    struct pq_info odd = noted;

    (void)state;
    char line[RESUME_LINE_MAX];
    assert_string_equal(resume_format(&noted, line, sizeof line), NOTED);
    struct pq_info got;
    assert_true(resume_parse(NOTED, &got));
    assert_same_info(&got, &noted);
    strcpy(odd.ident, "a}, {b,"); /* lengths say where a text ends, not its content */
    odd.origin[0] = '\0';
    assert_true(resume_parse(resume_format(&odd, line, sizeof line), &got));
    assert_same_info(&got, &odd);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (resume_parse(bad[i], &got))
            fail_msg("line %zu was taken", i);
}

static void resume_file(void **state)
{
    char dir[] = "/tmp/ldm6-XXXXXX";
    struct conf_request req = {.feed = 0x40000000, .ere = ".*", .host = "10.97.7.1", .port = 388};
    struct timeval when = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    char queue[64];
    snprintf(queue, sizeof queue, "%s/q", dir);
    char path[4096];
    assert_true(resume_path(path, sizeof path, queue, &req));
    req.port = 389;
    char other[4096];
    assert_true(resume_path(other, sizeof other, queue, &req));
    assert_string_not_equal(path, other);
    assert_int_equal(strlen(path), strlen(dir) + strlen("/.") + 32 + strlen(".info"));
    struct pq_info got;
    assert_false(resume_load(path, &got, NULL));
    assert_int_equal(resume_save(path, &noted), 0);
    assert_true(resume_load(path, &got, &when));
    assert_same_info(&got, &noted);
    struct timeval now;
    gettimeofday(&now, NULL);
    assert_in_range(when.tv_sec, now.tv_sec - 5, now.tv_sec + 1);
    unlink(path);
    assert_int_equal(rmdir(dir), 0); /* no temporary file remains */
}

/* ------------------------------------------------------------------ one feed per address */

struct child {
    pid_t pid;
    int go, said;
};

/* Starts a process that enters cls when told, reports the result, and stays until SIGTERM. */
static struct child feeder(struct feeds *f, const char *addr, struct ldm_class cls)
{
    int go[2], said[2];
    assert_int_equal(pipe(go) | pipe(said), 0);
    struct child c = {.pid = fork(), .go = go[1], .said = said[0]};
    if (c.pid == 0) {
        struct in_addr a;
        inet_pton(AF_INET, addr, &a);
        unsigned ended;
        uint32_t out[3];
        char byte;
        while (read(go[0], &byte, 1) == 1 && byte == 'e') {
            out[0] = feeds_enter(f, a, &cls, &ended);
            out[1] = ended;
            out[2] = cls.n > 0 ? cls.specs[0].feedtype : 0;
            if (write(said[1], out, sizeof out) != (ssize_t)sizeof out)
                break;
        }
        _exit(0);
    }
    close(go[0]);
    close(said[1]);
    return c;
}

static void expect_entry(struct child c, bool granted, unsigned ended, uint32_t feed)
{
    assert_int_equal(write(c.go, "e", 1), 1);
    uint32_t got[3];
    assert_int_equal(read(c.said, got, sizeof got), sizeof got);
    assert_int_equal(got[0], granted);
    assert_int_equal(got[1], ended);
    assert_int_equal(got[2], feed);
}

static int end_of(struct child c)
{
    if (write(c.go, "q", 1) != 1)
        assert_int_equal(errno, EPIPE); /* It was terminated. */
    close(c.go);
    close(c.said);
    int status;
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static struct ldm_class of(uint32_t feed, const char *ere)
{
    struct ldm_class c = {.n = 1};

    c.specs[0].feedtype = feed;
    strcpy(c.specs[0].pattern, ere);
    return c;
}

static void one_feed_per_address(void **state)
{
    struct feeds *f = feeds_new(8);

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    assert_non_null(f);
    struct child narrow = feeder(f, "10.0.0.1", of(0x1, "^a"));
    expect_entry(narrow, true, 0, 0x1);
    struct child other =
        feeder(f, "10.0.0.1", of(0x3, "^b")); /* another pattern: nothing in common */
    expect_entry(other, true, 0, 0x3);
    struct child elsewhere = feeder(f, "10.0.0.2", of(0x1, "^a"));
    expect_entry(elsewhere, true, 0, 0x1);
    struct child same =
        feeder(f, "10.0.0.1", of(0x1, "^a")); /* a new connection: the old one ends */
    expect_entry(same, true, 1, 0x1);
    assert_int_equal(end_of(narrow), SIGTERM);
    struct child wide = feeder(f, "10.0.0.1", of(0x1, ".*")); /* covers same, not other (0x2) */
    expect_entry(wide, true, 1, 0x1);
    assert_int_equal(end_of(same), SIGTERM);
    assert_int_equal(end_of(other), 0);
    feeds_leave(f, other.pid);
    narrow = feeder(f, "10.0.0.1", of(0x5, "^a")); /* 0x1 is already being sent: 0x4 remains */
    expect_entry(narrow, false, 0, 0x4);
    expect_entry(narrow, true, 0, 0x4);
    kill(wide.pid, SIGKILL); /* killed without a message */
    assert_int_equal(end_of(wide), SIGKILL);
    same = feeder(f, "10.0.0.1", of(0x1, "^a"));
    expect_entry(same, true, 0, 0x1);
    assert_int_equal(end_of(narrow) | end_of(same) | end_of(elsewhere), 0);
    feeds_free(f);
}

/* ------------------------------------------------------------------ intake */

struct fixture {
    struct intake in;
    struct pq *q;
    char path[32];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct ldm_class c = of(0x40000000, "^w");

    strcpy(f->path, "/tmp/ldm6-q-XXXXXX");
    close(mkstemp(f->path));
    if (pq_create(f->path, 100000, 10, true) != PQ_OK || pq_open(f->path, true, &f->q) != PQ_OK)
        return -1;
    c.to = LDM_TIME_END;
    f->in = (struct intake){.queue = f->q, .from = "up.example.org", .max_latency_s = 100};
    *state = f;
    char why[256];
    return intake_class(&f->in, &c, why, sizeof why);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    intake_free(&f->in);
    pq_close(f->q);
    unlink(f->path);
    free(f);
    return 0;
}

static struct pq_info product(uint8_t id, uint32_t size)
{
    struct pq_info i = {
        .signature = {{id}}, .origin = "maker", .feedtype = 0x40000000, .size = size};

    gettimeofday(&i.creation, NULL);
    snprintf(i.ident, sizeof i.ident, "w.%u", id);
    return i;
}

static void hereis(struct fixture *f, const struct pq_info *i, bool wanted)
{
    uint8_t *at = NULL;

    intake_begin(&f->in, i, &at);
    assert_int_equal(!!at, wanted);
    if (wanted)
        memset(at, i->signature.bytes[0], i->size);
    intake_end(&f->in);
}

static void takes_whole_products(void **state)
{
    struct fixture *f = *state;
    struct pq_info i = product(1, 1000), other = product(2, 10), old = product(3, 10),
                   big = product(4, 200000);

    strcpy(other.ident, "other");
    old.creation.tv_sec -= 200;
    hereis(f, &i, true);
    hereis(f, &i, false); /* duplicate */
    hereis(f, &other, false);
    hereis(f, &old, false);
    hereis(f, &big, false);
    assert_int_equal(f->in.accepted, 1);
    assert_int_equal(f->in.duplicates, 1);
    assert_int_equal(f->in.ignored, 3);
    assert_string_equal(f->in.last.ident,
                        "w.3"); /* too old counts as dealt with; too big does not */
    struct pq_view v;
    assert_int_equal(pq_next(f->q, 0, &v), PQ_OK);
    assert_string_equal(v.info.origin, "maker_v_up.example.org");
    assert_int_equal(v.data[999], 1);
    pq_release(f->q, &v);
    assert_int_equal(pq_last_seq(f->q), 1);
}

/* A signature of another product is refused, and the true product is taken when it comes. */
static void refuses_forged_signatures(void **state)
{
    struct fixture *f = *state;
    struct pq_info i = product(1, 1000), later = product(2, 10);
    static uint8_t data[1000];

    f->in.verify = true;
    memset(data, 7, sizeof data);
    assert_true(digest_of(data, sizeof data, &i.signature));
    uint8_t *at = NULL;
    for (int whole = 0; whole < 2; whole++) {
        intake_begin(&f->in, &i, &at);
        memset(at, 7, i.size);
        at[999] = whole ? 7 : 8;
        intake_end(&f->in);
        assert_int_equal(f->in.accepted, whole);
        assert_int_equal(f->in.forged, 1);
        assert_true(f->in.have_last); /* it is not requested again */
    }
    struct ldm_block b = {.signature = later.signature, .size = 10};
    assert_true(intake_coming(&f->in, &later));
    assert_true(intake_block(&f->in, &b, &at));
    memset(at, 0, 10);
    intake_end(&f->in);
    assert_int_equal(f->in.forged, 2);
    assert_int_equal(pq_last_seq(f->q), 1);
    f->in.verify = false;
    hereis(f, &later, true);
    assert_int_equal(f->in.accepted, 2);
}

static unsigned count_lines(const char *path, const char *text)
{
    FILE *f = fopen(path, "r");
    unsigned n = 0;

    assert_non_null(f);
    char line[LOG_LINE_MAX];
    while (fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    fclose(f);
    return n;
}

/* This is logged at the default level, once a minute, with the age. */
static void says_that_products_are_too_old(void **state)
{
    struct fixture *f = *state;

    char path[] = "/tmp/ldm6-log-XXXXXX";
    close(mkstemp(path));
    assert_int_equal(log_set_destination(path), 0);
    for (uint8_t id = 1; id <= 5; id++) {
        struct pq_info old = product(id, 10);
        old.creation.tv_sec -= 4000;
        hereis(f, &old, false);
    }
    assert_int_equal(count_lines(path, "WARN"), 1);
    assert_int_equal(count_lines(path, "1 products ignored as too old, the last one by 4000 s"), 1);
    f->in.warned_s -= 60;
    struct pq_info old = product(6, 10);
    old.creation.tv_sec -= 5000;
    hereis(f, &old, false);
    assert_int_equal(count_lines(path, "6 products ignored as too old, the last one by 5000 s"), 1);
    log_set_destination("-");
    unlink(path);
    assert_int_equal(f->in.too_old, 6);
    assert_int_equal(f->in.ignored, 6);
}

/* They are taken, and reported. */
static void says_that_products_are_of_the_future(void **state)
{
    struct fixture *f = *state;

    char path[] = "/tmp/ldm6-log-XXXXXX";
    close(mkstemp(path));
    assert_int_equal(log_set_destination(path), 0);
    for (uint8_t id = 1; id <= 5; id++) {
        struct pq_info i = product(id, 10);
        i.creation.tv_sec += id == 1 ? 50 : 4000;
        hereis(f, &i, true);
    }
    assert_int_equal(count_lines(path, "WARN"), 1);
    assert_int_equal(count_lines(path, "1 products made in the future, the last one by "), 1);
    log_set_destination("-");
    unlink(path);
    assert_int_equal(f->in.ahead, 4);
    assert_int_equal(f->in.accepted, 5);
}

/* Seconds are unsigned on the wire: a product of 2039 comes after one of today, and one of 2106
 * after that. */
static void knows_times_to_2106(void **state)
{
    struct fixture *f = *state;
    struct pq_info i = product(1, 10), last = product(2, 10);

    i.creation.tv_sec = (time_t)INT32_MAX + 40000000;
    last.creation = (struct timeval){UINT32_MAX, 0};
    assert_int_equal(info_time(&i).sec, (uint32_t)INT32_MAX + 40000000u);
    assert_true(ldm_time_cmp(info_time(&i), wall_time(0)) > 0);
    assert_true(ldm_time_cmp(info_time(&last), info_time(&i)) > 0);
    assert_true(ldm_time_cmp(wall_time(-1e12), info_time(&last)) >= 0);
    hereis(f, &i, true);
    hereis(f, &last, true);
    struct pq_view v;
    assert_int_equal(pq_next(f->q, 0, &v), PQ_OK);
    assert_int_equal(v.info.creation.tv_sec, (time_t)INT32_MAX + 40000000);
    pq_release(f->q, &v);
}

static void takes_announced_products(void **state)
{
    struct fixture *f = *state;
    struct pq_info i = product(1, 1000), empty = product(2, 0);
    struct ldm_block b = {.signature = i.signature, .size = 600},
                     alien = {.signature = {{9}}, .size = 1};
    uint8_t *at;

    assert_true(intake_block(&f->in, &b, &at)); /* not announced: dropped, no harm */
    assert_null(at);
    intake_end(&f->in);
    assert_true(intake_coming(&f->in, &i));
    assert_false(intake_block(&f->in, &alien, &at)); /* of another product */
    assert_true(intake_block(&f->in, &b, &at));
    memset(at, 7, 600);
    intake_end(&f->in);
    assert_false(intake_block(&f->in, &b, &at)); /* 1200 of 1000 bytes */
    b.size = 400;
    assert_true(intake_block(&f->in, &b, &at));
    memset(at, 8, 400);
    assert_int_equal(pq_last_seq(f->q), 0);
    intake_end(&f->in);
    struct pq_view v;
    assert_int_equal(pq_next(f->q, 0, &v), PQ_OK);
    assert_int_equal(v.data[599], 7);
    assert_int_equal(v.data[600], 8);
    pq_release(f->q, &v);
    assert_false(intake_coming(&f->in, &i)); /* duplicate: DONT_SEND */
    assert_true(intake_coming(&f->in, &empty));
    b = (struct ldm_block){.signature = empty.signature};
    assert_true(intake_block(&f->in, &b, &at));
    intake_end(&f->in);
    assert_int_equal(pq_last_seq(f->q), 2);
}

static void gives_room_back(void **state)
{
    struct fixture *f = *state;
    struct pq_info i = product(1, 90000);
    uint8_t *at;

    for (uint8_t n = 1; n < 50; n++) { /* room for one of them only */
        i = product(n, 90000);
        assert_true(intake_coming(&f->in, &i));
        intake_begin(&f->in, &i, &at);
        assert_non_null(at);
        intake_abort(&f->in);
    }
    struct pq_stats st;
    pq_get_stats(f->q, &st);
    assert_int_equal(st.used_bytes, 0);
    assert_int_equal(pq_check(f->q), PQ_OK);
}

/* Another process wants more than is free: it waits briefly, and requests room. */
static void want_room(const struct fixture *f)
{
    struct pq *other;
    void *at;
    struct pq_reservation *r;

    assert_int_equal(pq_open(f->path, true, &other), PQ_OK);
    pq_set_patience(other, 5);
    assert_int_equal(pq_reserve(other, NULL, 60000, &at, &r), PQ_FULL);
    pq_close(other);
}

static void gives_way_when_nothing_comes(void **state)
{
    const uint64_t ms = 1000000;
    struct fixture *f = *state;
    struct intake *in = &f->in;
    struct pq_info i = product(1, 60000);
    uint8_t *at = NULL;

    assert_false(intake_must_go(in, 0, 100000 * ms)); /* nothing is arriving */
    intake_begin(in, &i, &at);
    assert_non_null(at);
    uint64_t t = in->stalled.began_ns;
    assert_false(intake_must_go(in, t, t + 100000 * ms)); /* no process wants the room */
    want_room(f);
    assert_false(intake_must_go(in, t, t + 999 * ms));
    assert_false(intake_must_go(in, t + 500 * ms, t + 1499 * ms));
    assert_true(intake_must_go(in, t + 500 * ms, t + 1500 * ms));
    /* It comes byte by byte. */
    assert_false(intake_must_go(in, t + 9998 * ms, t + 9999 * ms));
    assert_true(intake_must_go(in, t + 9999 * ms, t + 10000 * ms));
    /* Room that was wanted before another product began is not demanded from that one. */
    want_room(f);
    intake_abort(in);
    assert_true(intake_coming(in, &i));
    t = in->stalled.began_ns;
    assert_false(intake_must_go(in, t, t + 100000 * ms));
    want_room(f);
    assert_true(intake_must_go(in, t, t + 1000 * ms));
}

static void origins(void **state)
{
    struct pq_info i = {.origin = "a_v_b"};

    (void)state;
    origin_stamp(&i, "c");
    assert_string_equal(i.origin, "a_v_c");
    char host[100];
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    origin_stamp(&i, host);
    assert_int_equal(strlen(i.origin), PQ_ORIGIN_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shift_alone),
        cmocka_unit_test(shift_of_three),
        cmocka_unit_test(resume_line),
        cmocka_unit_test(resume_file),
        cmocka_unit_test(one_feed_per_address),
        cmocka_unit_test(origins),
        cmocka_unit_test_setup_teardown(takes_whole_products, setup, teardown),
        cmocka_unit_test_setup_teardown(says_that_products_are_too_old, setup, teardown),
        cmocka_unit_test_setup_teardown(says_that_products_are_of_the_future, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_forged_signatures, setup, teardown),
        cmocka_unit_test_setup_teardown(knows_times_to_2106, setup, teardown),
        cmocka_unit_test_setup_teardown(takes_announced_products, setup, teardown),
        cmocka_unit_test_setup_teardown(gives_room_back, setup, teardown),
        cmocka_unit_test_setup_teardown(gives_way_when_nothing_comes, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
