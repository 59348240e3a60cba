/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "ldmd/conf.h"

static char *messages;
static size_t messages_len;

static int parse(struct conf *c, const char *text)
{
    free(messages);
    messages = NULL;
    FILE *f = open_memstream(&messages, &messages_len);
    int rc = conf_parse(c, "test.conf", text, strlen(text), f);
    fclose(f);
    return rc;
}

/* Every entry and every kind of setting. */
static const char everything[] =
    "# comment\n\n"
    "EXEC \"pqinsert -f NGRID \\\"a b\\\"\"\n"
    "request\tNGRID|EXP  \".*\\.grb\"  10.0.0.1:3880   # downstream\n"
    "REQUEST ANY-EXP x up.example.org\n"
    "ALLOW ANY ^10\\.0\\. \"^keep\" nothing\n"
    "ACCEPT EXP .* ^10\n"
    "MULTICAST NGRID 224.0.1.9:38800 10.1.0.1:4000 24 101 newy et-1\n"
    "RECEIVE NGRID 10.2.0.1:3880 10.1.0.2 starlight p2 205\n"
    "RECEIVE EXP 10.2.0.1 10.1.0.2\n"
    "RECEIVE WMO 10.2.0.1 eth1.205 starlight p2\n"
    "RECEIVE NEXRAD2 up.example.org\n"
    "MULTICAST EXP 224.0.1.10\n"
    "SET fmtp.layout 2017\nSET fmtp.f_snd 12.5\nSET fmtp.f_rcv 2\nSET FMTP.R_MC_BPS 60000000\n"
    "SET fmtp.r_uc_bps 5000000\nSET fmtp.pdu_bytes 1200\nSET fmtp.mac_level 2\nSET fmtp.repair Unicast\n"
    "SET fmtp.timer_from BOP\nSET fmtp.timer_by Handover\nSET fmtp.handover_us 36.5\nSET fmtp.blocking On\n"
    "SET fmtp.b_rcv_bytes 600000000\nSET fmtp.b_snd_bytes 599999999\nSET fmtp.ttl 5\nSET ldm6.max_latency_s 100\n"
    "SET ldm7.verify_md5 1\nSET ldm6.congestion_control ctcp_187\n";

static void every_entry(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c, everything), 0);
    assert_int_equal(messages_len, 0);
    assert_string_equal(c.execs[0].argv[2], "NGRID");
    assert_string_equal(c.execs[0].argv[3], "a b");
    assert_null(c.execs[0].argv[4]);
    assert_int_equal(c.nrequests, 2);
    assert_int_equal(c.requests[0].feed, 0x40800000);
    assert_string_equal(c.requests[0].ere, ".*\\.grb");
    assert_string_equal(c.requests[0].host, "10.0.0.1");
    assert_int_equal(c.requests[0].port, 3880);
    assert_int_equal(c.requests[1].feed, 0xbfffffff);
    assert_int_equal(c.requests[1].port, 388);
    assert_true(c.allows[0].ok && c.allows[0].unless);
    assert_int_equal(c.naccepts, 1);
    assert_int_equal(c.multicasts[0].feed, 0x00800000);
    assert_int_equal(ntohs(c.multicasts[0].group.sin_port), 38800);
    char ip[32];
    assert_string_equal(inet_ntop(AF_INET, &c.multicasts[0].fmtp_addr, ip, sizeof ip), "10.1.0.1");
    assert_int_equal(c.multicasts[0].fmtp_port, 4000);
    assert_int_equal(c.multicasts[0].subnet_len, 24);
    assert_int_equal(c.multicasts[0].vlan, 101);
    assert_string_equal(c.multicasts[0].port_id, "et-1");
    assert_int_equal(c.nmulticasts, 2);
    assert_int_equal(ntohs(c.multicasts[1].group.sin_port), 388);
    assert_int_equal(c.multicasts[1].fmtp_addr.s_addr, INADDR_ANY);
    assert_string_equal(c.multicasts[1].switch_id, "dummy");
    assert_int_equal(c.nreceives, 4);
    assert_string_equal(c.receives[0].iface_name, "");
    assert_string_equal(c.receives[2].iface_name, "eth1.205");
    assert_int_equal(c.receives[2].iface.s_addr, INADDR_ANY);
    assert_string_equal(c.receives[2].port_id, "p2");
    assert_int_equal(c.receives[3].iface.s_addr, INADDR_ANY);
    assert_string_equal(c.receives[3].iface_name, "");
    assert_int_equal(c.receives[0].vlan, 205);
    assert_string_equal(c.receives[1].switch_id, "dummy");
    conf_free(&c);
}

static void every_kind_of_setting(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c, everything), 0);
    assert_int_equal(c.set.fmtp_layout, 2017);
    assert_true(c.set.timer_from_bop && c.set.timer_by_handover && c.set.blocking);
    assert_true(c.set.handover_us == 36.5);
    assert_true(c.set.f_snd == 12.5 && c.set.f_rcv == 2 && c.set.max_latency_s == 100);
    assert_int_equal(c.set.r_mc_bps, 60000000);
    assert_int_equal(c.set.b_rcv_bytes, 600000000);
    assert_int_equal(c.set.b_snd_bytes, 599999999);
    assert_int_equal(c.set.ttl, 5);
    assert_int_equal(c.set.r_uc_bps, 5000000);
    assert_int_equal(c.set.pdu_bytes, 1200);
    assert_int_equal(c.set.mac_level, 2);
    assert_int_equal(c.set.repair, CONF_REPAIR_UNICAST);
    assert_true(c.set.verify_md5);
    assert_string_equal(c.set.congestion_control, "ctcp_187");
    conf_free(&c);
}

/* Keys for all feeds, and for some. */
static void key_files(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c,
                           "SET fmtp.key_file /a\nSET fmtp.key_file /b EXP\n"
                           "SET fmtp.mac_level AUTO\nMULTICAST EXP 224.0.0.1:1 10.0.0.1 24 0 s p\n"
                           "RECEIVE NGRID h\n"),
                     0);
    assert_int_equal(c.set.mac_level, CONF_MAC_AUTO);
    assert_string_equal(c.multicasts[0].key_file, "/b");
    assert_string_equal(c.receives[0].key_file, "/a");
    conf_free(&c);
}

/* The interfaces that a publisher creates: for all feeds, and for some. */
static void nics(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c, "SET ldm7.nic eth1\nSET ldm7.nic eth2 NGRID\n"
                               "SET ldm7.nic_buffer_bytes 300000000\n"
                               "MULTICAST EXP 224.0.0.1 10.0.0.1 24 7 s p\n"
                               "MULTICAST WMO 224.0.0.2 10.0.1.1 24 8 s p\n"
                               "MULTICAST NGRID 224.0.0.3 10.0.2.1 0 0 s p\n"),
                     0);
    assert_string_equal(c.multicasts[1].nic, "eth1");
    assert_string_equal(c.multicasts[2].nic, "eth2");
    assert_true(conf_makes_vlan(&c, &c.multicasts[0]));
    assert_false(conf_makes_vlan(&c, &c.multicasts[2])); /* it has no VLAN */
    assert_int_equal(c.set.nic_buffer_bytes, 300000000);
    conf_free(&c);
}

/* What could not be created is reported with its line before anything starts. */
static void nics_refused(void **state)
{
    static const struct {
        const char *entries, *said;
    } cases[] = {
        {"MULTICAST EXP 224.0.0.1\nSET ldm7.nic_tags 0\nMULTICAST WMO 224.0.0.2\n",
         "test.conf:4: found \"eth1\""},
        {"MULTICAST EXP 224.0.0.1 10.0.0.1 0 7 s p\n", "test.conf:2: found \"eth1.7\""},
        {"MULTICAST EXP 224.0.0.1 0.0.0.0 24 7 s p\n", "test.conf:2: found \"eth1.7\""},
        {"MULTICAST EXP 224.0.0.1 10.0.0.1 24 7 s p\nMULTICAST WMO 224.0.0.2 10.0.1.1 24 7 s p\n",
         "test.conf:3: found \"eth1.7\""},
        {"SET ldm7.nic a_long_name EXP\nMULTICAST EXP 224.0.0.1 10.0.0.1 24 4000 s p\n",
         "test.conf:3: found \"a_long_name.4000\""},
        {"SET ldm7.nic eth1;id\n", "test.conf:2: found \"eth1;id\""},
        {"SET ldm7.nic_buffer_bytes 1 EXP\n", "fmtp.key_file, fmtp.r_mc_bps, ldm7.nic or path"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct conf c;
        char text[512];
        snprintf(text, sizeof text, "SET ldm7.nic eth1\n%s", cases[i].entries);
        assert_int_equal(parse(&c, text), -1);
        assert_non_null(strstr(messages, cases[i].said));
        assert_ptr_equal(strchr(messages, '\n'), messages + messages_len - 1);
        conf_free(&c);
    }
}

static void defaults(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c, ""), 0);
    assert_int_equal(c.set.fmtp_layout, 2021);
    assert_int_equal(c.set.mac_level, CONF_MAC_AUTO);
    assert_true(c.set.verify_md5);
    assert_string_equal(c.set.key_file, "");
    assert_false(c.set.timer_from_bop || c.set.timer_by_handover || c.set.blocking);
    assert_true(c.set.handover_us == 0);
    assert_true(c.set.f_snd == 5000 && c.set.f_rcv == 20); /* MPUP16, Table II */
    assert_true(c.set.max_latency_s == 3600);
    assert_string_equal(c.set.congestion_control, "");
    assert_true(c.set.time_offset_s == 3600 && c.set.anti_dos);
    conf_free(&c);
    assert_int_equal(parse(&c, "SET ldm6.max_latency_s 60\n"), 0);
    assert_true(c.set.time_offset_s == 60); /* follows max_latency_s unless set */
    conf_free(&c);
    assert_int_equal(parse(&c, "SET ldm6.time_offset_s 0\nSET ldm6.anti_dos 0\n"), 0);
    assert_true(c.set.time_offset_s == 0 && !c.set.anti_dos);
    conf_free(&c);
}

/* Each line is wrong in one way; all are reported in one go, with their line. */
static void all_errors_at_once(void **state)
{
    static const struct {
        const char *line, *found;
    } bad[] = {
        {"FROB a b", "FROB"},
        {" ALLOW ANY .*", "ALLOW"},
        {"REQUEST NGRYD .* host", "NGRYD"},
        {"REQUEST ANY ( host", "("},
        {"REQUEST ANY .* host:0", "host:0"},
        {"REQUEST ANY .*", "REQUEST"},
        {"ALLOW ANY [", "["},
        {"ALLOW ANY x a{9999}", "a{9999}"},
        {"MULTICAST ANY 10.0.0.1 10.1.0.1 24 0 s p", "10.0.0.1"},
        {"MULTICAST ANY 224.0.0.1 10.1.0 24 0 s p", "10.1.0"},
        {"MULTICAST ANY 224.0.0.1 10.1.0.1 33 0 s p", "33"},
        {"MULTICAST ANY 224.0.0.1 10.1.0.1 24 4095 s p", "4095"},
        {"RECEIVE ANY h 10.1.0.300", "10.1.0.300"},
        {"RECEIVE ANY h eth0;id", "eth0;id"},
        {"RECEIVE ANY h eth0 switch", "RECEIVE"},
        {"RECEIVE ANY h interface0123456", "interface0123456"},
        {"MULTICAST ANY 224.0.0.1 10.1.0.1 24 0 s", "MULTICAST"},
        {"SET ldm6.congestion_control a.b", "a.b"},
        {"SET ldm6.congestion_control sixteen_letters_", "sixteen_letters_"},
        {"EXEC \"\"", ""},
        {"EXEC \"rtstats 'open\"", "rtstats 'open"},
        {"SET fmtp.ttl 256", "256"},
        {"SET fmtp.repair both", "both"},
        {"SET fmtp.timer_from now", "now"},
        {"SET fmtp.timer_by size", "size"},
        {"SET fmtp.handover_us -1", "-1"},
        {"SET fmtp.blocking yes", "yes"},
        {"SET fmtp.mac_level 3", "3"},
        {"SET fmtp.layout 2018", "2018"},
        {"SET fmtp.speed 1", "fmtp.speed"},
        {"SET fmtp.f_snd nan", "nan"},
        {"EXEC \"open", "EXEC"},
        {"INCLUDE other.conf", "other.conf"},
    };
    char text[8192] = "";
    size_t n = sizeof bad / sizeof bad[0];

    (void)state;
    for (size_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", bad[i].line);
    struct conf c;
    assert_int_equal(parse(&c, text), -1);
    assert_int_equal(c.nerrors, n);
    char want[256];
    for (size_t i = 0; i < n; i++) {
        snprintf(want, sizeof want, "test.conf:%zu: found \"%s\"", i + 1, bad[i].found);
        if (!strstr(messages, want))
            fail_msg("no message begins with: %s\nmessages:\n%s", want, messages);
    }
    conf_free(&c);
}

static void overlapping_multicast(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c, "MULTICAST ANY 224.0.0.1 10.1.0.1 24 0 s p\n"
                               "MULTICAST EXP 224.0.0.2 10.1.0.1 24 0 s p\n"),
                     -1);
    assert_non_null(strstr(messages, "test.conf:2: found \"EXP\""));
    conf_free(&c);
}

/* The same REQUEST twice is a mistake; the same feed from two hosts is redundancy. */
static void overlapping_requests(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c, "REQUEST ANY .* a.example\nREQUEST ANY .* b.example\n"
                               "REQUEST NGRID .* a.example\nREQUEST ANY x a.example\n"
                               "REQUEST ANY .* a.example:3880\n"),
                     0);
    assert_int_equal(c.nrequests, 5);
    conf_free(&c);
    assert_int_equal(
        parse(&c, "REQUEST ANY .* a.example\nREQUEST EXP .* b\nREQUEST ANY .* A.example:388\n"),
        -1);
    assert_int_equal(c.nerrors, 1);
    assert_non_null(strstr(
        messages, "test.conf:3: found \"A.example\": the same REQUEST already exists; valid: "));
    conf_free(&c);
    assert_int_equal(parse(&c, "RECEIVE ANY a 10.0.0.1\nRECEIVE EXP b 10.0.0.1\nRECEIVE EXP a\n"),
                     -1);
    assert_int_equal(c.nerrors, 1);
    assert_non_null(strstr(messages, "test.conf:3: found \"EXP\""));
    conf_free(&c);
}

static void includes(void **state)
{
    char dir[] = "/tmp/ldmd-conf-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(dir));
    char a[64];
    snprintf(a, sizeof a, "%s/a.conf", dir);
    char b[64];
    snprintf(b, sizeof b, "%s/b.conf", dir);
    FILE *f = fopen(a, "w");
    fputs("INCLUDE b.conf\nALLOW EXP .*\n", f);
    fclose(f);
    f = fopen(b, "w");
    fputs("ALLOW NGRID .*\n", f);
    fclose(f);
    struct conf c;
    assert_int_equal(conf_load(&c, a, NULL), 0);
    assert_int_equal(c.nallows, 2);
    conf_free(&c);
    /* A circle ends at once, with one message. */
    f = fopen(b, "w");
    fputs("# b\nINCLUDE ./a.conf\nREQUEST ANY .* up.example\n", f);
    fclose(f);
    free(messages);
    f = open_memstream(&messages, &messages_len);
    assert_int_equal(conf_load(&c, a, f), -1);
    fclose(f);
    assert_int_equal(c.nerrors, 1);
    assert_non_null(strstr(messages, "b.conf:2: found \"./a.conf\": "));
    assert_non_null(strstr(messages, "a.conf includes itself; valid: "));
    conf_free(&c);
    /* Including the same file twice in succession is no circle. */
    f = fopen(b, "w");
    fputs("ALLOW NGRID .*\n", f);
    fclose(f);
    f = fopen(a, "w");
    fputs("INCLUDE b.conf\nINCLUDE b.conf\n", f);
    fclose(f);
    assert_int_equal(conf_load(&c, a, NULL), 0);
    assert_int_equal(c.nallows, 2);
    conf_free(&c);
    unlink(b);
    assert_int_equal(conf_load(&c, a, NULL), -1);
    conf_free(&c);
    unlink(a);
    rmdir(dir);
}

static void allow(void **state)
{
    const char *ten[] = {"10.0.0.7"}, *other[] = {"192.168.1.1", "host.Example.org"};
    struct pq_info info = {.feedtype = 0x00800000, .ident = "keep.this"};

    (void)state;
    struct conf c;
    assert_int_equal(
        parse(&c, "ALLOW NGRID ^10\\. ^keep secret\nALLOW EXP|NGRID \\.example\\.org$\n"), 0);
    assert_int_equal(conf_allowed(&c, 0xffffffff, ten, 1), 0x00800000);
    assert_int_equal(conf_allowed(&c, 0x40000000, ten, 1), 0);
    assert_int_equal(conf_allowed(&c, 0xffffffff, other, 2), 0x40800000);
    assert_int_equal(conf_allowed(&c, 0xffffffff, other, 1), 0);
    assert_true(conf_allows_product(&c, &info, ten, 1));
    strcpy(info.ident, "keep.secret");
    assert_false(conf_allows_product(&c, &info, ten, 1));
    assert_true(conf_allows_product(&c, &info, other, 2));
    strcpy(info.ident, "lose.this");
    assert_false(conf_allows_product(&c, &info, ten, 1));
    conf_free(&c);
}

static void accepted(void **state)
{
    const char *ten[] = {"10.0.0.7"}, *other[] = {"192.168.1.1"};
    struct ldm_class offer = {.from = {5, 6}, .to = LDM_TIME_END, .n = 2};

    (void)state;
    offer.specs[0] = (struct ldm_spec){0x40800000, "^mine"};
    offer.specs[1] = (struct ldm_spec){0x00000001, ".*"};
    struct conf c;
    assert_int_equal(parse(&c, "ACCEPT EXP .* ^10\\.\nACCEPT PPS|DDS ^p ^10\\.\n"), 0);
    struct ldm_class got;
    conf_accepted(&c, &offer, ten, 1, &got);
    assert_int_equal(got.from.sec, 5);
    assert_int_equal(got.n, 2);
    assert_int_equal(got.specs[0].feedtype, 0x40000000);
    assert_string_equal(got.specs[0].pattern, "^mine");
    assert_int_equal(got.specs[1].feedtype, 1);
    assert_string_equal(got.specs[1].pattern, "^p");
    conf_accepted(&c, &offer, other, 1, &got);
    assert_int_equal(got.n, 0);
    conf_free(&c);
}

static void redundant_requests(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c, "REQUEST EXP .* a\nREQUEST EXP x b\nREQUEST EXP .* c\n"), 0);
    size_t place;
    assert_int_equal(conf_redundant(&c, &c.requests[0], &place), 2);
    assert_int_equal(place, 0);
    assert_int_equal(conf_redundant(&c, &c.requests[1], &place), 1);
    assert_int_equal(place, 0);
    assert_int_equal(conf_redundant(&c, &c.requests[2], &place), 2);
    assert_int_equal(place, 1);
    conf_free(&c);
}

static void matching(void **state)
{
    struct ldm_class cls = {.from = {1000, 0}, .to = LDM_TIME_END, .n = 2};
    struct pq_info info = {.creation = {1000, 0}, .feedtype = 0x40000000, .ident = "grid.042"};
    struct pq_signature sig = {{1, 2, 0xab}};

    (void)state;
    cls.specs[0] = (struct ldm_spec){0x40000000, "^grid\\.[0-9]+$"};
    cls.specs[1] = (struct ldm_spec){0x1, ".*"};
    assert_true(class_add_signature(&cls, &sig));
    assert_string_equal(cls.specs[2].pattern, "SIG=0102ab00000000000000000000000000");
    struct pq_signature got;
    assert_true(class_take_signature(&cls, &got));
    assert_memory_equal(&got, &sig, sizeof sig);
    assert_int_equal(cls.n, 2);
    struct matcher m;
    char err[256];
    assert_int_equal(matcher_init(&m, &cls, err, sizeof err), 0);
    assert_true(matcher_wants(&m, &info));
    info.creation.tv_sec = 999;
    assert_false(matcher_wants(&m, &info));
    m.ignore_from = true;
    assert_true(matcher_wants(&m, &info));
    strcpy(info.ident, "grid.x");
    assert_false(matcher_wants(&m, &info));
    info.feedtype = 1;
    assert_true(matcher_wants(&m, &info));
    info.feedtype = 2;
    assert_false(matcher_wants(&m, &info));
    matcher_free(&m);
}

static void hostile_patterns(void **state)
{
    static const char *const bad[] = {"(a)\\1", "((a{100}){100}){100}", "a{1025}", "a{1,5000}", "(",
                                      "[",      "a{99999999999}"};
    static const char *const good[] = {".*",        ".*x",   "a{10}b{10}", "\\.",
                                       "x\\{99999", "^a|b$", ".*|a"};

    (void)state;
    struct ere *re;
    char err[512];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ere_compile(&re, bad[i], false, err, sizeof err), -1);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(ere_compile(&re, good[i], false, err, sizeof err), 0);
        ere_free(re);
    }
}

static void path_service(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(
        parse(&c,
              "MULTICAST NGRID|EXP 224.0.1.9 10.1.0.1 24 101 newy 3\n"
              "MULTICAST WMO 224.0.1.10 10.1.0.1 24 102 newy 4\n"
              "MULTICAST NEXRAD2 224.0.1.11 10.1.0.1 24 0 dummy dummy\n"
              "RECEIVE CONDUIT up.example.org\n"
              "SET path.rate_bps 30000000 EXP\n" /* part of the first: does not have its rate */
              "SET path.rate_bps 40000000 NGRID|EXP\nSET fmtp.r_mc_bps 5000000 ANY-WMO\n"
              "SET path.service unix:/run/path.sock\nSET path.name ldm.{feed}-1\n"
              "SET path.token_file /etc/token\nSET path.ca_file /etc/ca.pem\nSET path.timeout_s 7\n"
              "SET path.grace_s 0\nSET ldm7.dead_s 10\n"),
        0);
    assert_string_equal(c.set.path_service, "unix:/run/path.sock");
    assert_string_equal(c.set.path_token_file, "/etc/token");
    assert_string_equal(c.set.path_ca_file, "/etc/ca.pem");
    assert_int_equal(c.set.path_timeout_s, 7);
    assert_int_equal(c.set.path_grace_s, 0);
    assert_int_equal(c.set.dead_s, 10);
    assert_int_equal(c.set.r_mc_bps, 20000000);
    assert_int_equal(c.multicasts[0].path_rate_bps, 40000000);
    assert_int_equal(c.multicasts[0].r_mc_bps, 5000000);
    assert_int_equal(c.multicasts[1].path_rate_bps, 20000000); /* as fmtp.r_mc_bps */
    assert_int_equal(c.multicasts[1].r_mc_bps, 20000000);
    assert_int_equal(c.receives[0].r_mc_bps, 5000000);
    assert_true(conf_has_path(&c, &c.multicasts[0]));
    assert_false(conf_has_path(&c, &c.multicasts[2]));
    char name[CONF_PATH_NAME];
    assert_string_equal(conf_path_name(&c.set, 0x40800000, name), "ldm.EXP-NGRID-1");
    assert_string_equal(conf_path_name(&c.set, 0x12345678, name),
                        "ldm.0x12345678-1"); /* too long */
    conf_free(&c);
}

static void wrong_path_settings(void **state)
{
    static const char *const bad[] = {"path.service unix:relative",
                                      "path.service ftp://h",
                                      "path.service http://",
                                      "path.service http://h/x",
                                      "path.service \"http://a b\"",
                                      "path.service http://a,",
                                      "path.service ,http://a",
                                      "path.service http://a,b",
                                      "path.name NGRID",
                                      "path.name {feed}/x",
                                      "path.name {feed}{feed}",
                                      "path.timeout_s 0",
                                      "path.rate_bps -1",
                                      "path.grace_s x",
                                      "ldm7.dead_s 2",
                                      "fmtp.ttl 3 NGRID",
                                      "path.rate_bps 5 NOSUCH",
                                      "path.rate_bps x NGRID"};

    (void)state;
    struct conf c;
    char line[256];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(line, sizeof line, "SET %s\n", bad[i]);
        assert_int_equal(parse(&c, line), -1);
        assert_non_null(strstr(messages, "test.conf:1: found \""));
        conf_free(&c);
    }
}

/* Without a service any name is accepted; with one, a port is a number. */
static void ports_of_paths(void **state)
{
    (void)state;
    struct conf c;
    assert_int_equal(parse(&c, "MULTICAST WMO 224.0.1.10 10.1.0.1 24 102 newy et-1\n"), 0);
    conf_free(&c);
    assert_int_equal(parse(&c, "\nMULTICAST WMO 224.0.1.10 10.1.0.1 24 102 newy et-1\n"
                               "SET path.service https://[::1]:8443,unix:/a,http://h\n"),
                     -1);
    assert_string_equal(messages,
                        "test.conf:2: found \"newy\": port et-1, VLAN 102: a port is a number from "
                        "1 to 4294967039; valid: an endpoint of the path service, or dummy\n");
    conf_free(&c);
}

static int cleanup(void **state)
{
    (void)state;
    free(messages);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry),
        cmocka_unit_test(every_kind_of_setting),
        cmocka_unit_test(defaults),
        cmocka_unit_test(key_files),
        cmocka_unit_test(nics),
        cmocka_unit_test(nics_refused),
        cmocka_unit_test(all_errors_at_once),
        cmocka_unit_test(overlapping_multicast),
        cmocka_unit_test(overlapping_requests),
        cmocka_unit_test(includes),
        cmocka_unit_test(allow),
        cmocka_unit_test(accepted),
        cmocka_unit_test(redundant_requests),
        cmocka_unit_test(matching),
        cmocka_unit_test(hostile_patterns),
        cmocka_unit_test(path_service),
        cmocka_unit_test(wrong_path_settings),
        cmocka_unit_test(ports_of_paths),
    };

    return cmocka_run_group_tests(tests, NULL, cleanup);
}
