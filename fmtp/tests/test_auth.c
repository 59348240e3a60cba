/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may be a receiver and what datagrams carry: negotiated MAC levels, and the key that both ends
 * were given, over real sockets on the loopback interface.
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "addresses.h"
#include "fmtp.h"
#include "keyx.h"
#include "mac.h"

enum { TURNS = 1000, TURN_MS = 10 };

static unsigned notices[FMTP_NOTICES];
static uint8_t received[5000];
static unsigned nended;

static void on_notice(void *ctx, const struct sockaddr *peer, enum fmtp_notice what)
{
    (void)ctx;
    (void)peer;
    notices[what]++;
}

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    (void)ctx;
    (void)index;
    (void)meta;
    (void)meta_len;
    (void)start;
    return size <= sizeof received ? received : NULL;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s)
{
    (void)ctx;
    (void)index;
    (void)retx_blocks;
    (void)delay_s;
    nended++;
}

static void missed(void *ctx, uint32_t index)
{
    (void)ctx;
    (void)index;
}

static struct fmtp_server *open_server(unsigned level, const uint8_t *key)
{
    struct tp_error err;
    struct fmtp_server_config cfg = {.layout = FMTP_LAYOUT_2021,
                                     .address = address("127.0.0.1", 0),
                                     .group = address("239.192.7.31", 38931),
                                     .mac_level = level,
                                     .f_snd = 1e7,
                                     .r_mc_bps = 100000000,
                                     .max_per_address = 16,
                                     .has_key = key,
                                     .notice = on_notice};

    if (key)
        memcpy(cfg.key, key, sizeof cfg.key);
    memset(notices, 0, sizeof notices);
    struct fmtp_server *s = fmtp_server_open(&cfg, &err);
    if (!s)
        fail_msg("%s", err.text);
    return s;
}

static struct fmtp_client *open_client(struct fmtp_server *s, unsigned level, const uint8_t *key)
{
    struct tp_error err;
    struct fmtp_client_config cfg = {.layout = FMTP_LAYOUT_2021,
                                     .server = address("127.0.0.1", fmtp_server_tcp_port(s)),
                                     .group = address("239.192.7.31", 38931),
                                     .interface = address("127.0.0.1", 0),
                                     .mac_level = level,
                                     .f_rcv = 20,
                                     .r_mc_bps = 100000000,
                                     .has_key = key,
                                     .begun = begun,
                                     .ended = ended,
                                     .missed = missed};

    if (key)
        memcpy(cfg.key, key, sizeof cfg.key);
    struct fmtp_client *c = fmtp_client_open(&cfg, &err);
    if (!c)
        fail_msg("%s", err.text);
    return c;
}

/* Runs one turn of both ends. Returns -1 when the client is lost, with *err. */
static int turn(struct fmtp_server *s, struct fmtp_client *c, struct tp_error *err)
{
    struct pollfd p[2] = {{.fd = fmtp_server_fd(s), .events = POLLIN},
                          {.fd = c ? fmtp_client_fd(c) : -1, .events = POLLIN}};
    struct tp_error mine;

    poll(p, 2, TURN_MS);
    assert_int_equal(fmtp_server_service(s, &mine), 0);
    return c ? fmtp_client_service(c, err) : 0;
}

/* Runs until the client is connected (0) or lost (-1, with *err). */
static int settle(struct fmtp_server *s, struct fmtp_client *c, struct tp_error *err)
{
    for (int i = 0; i < TURNS; i++) {
        if (turn(s, c, err) < 0)
            return -1;
        if (fmtp_client_connected(c))
            return 0;
    }
    fail_msg("neither connected nor lost");
    return -1;
}

static enum fmtp_mac_kind kind_of(const struct fmtp_client *c, unsigned *level)
{
    struct fmtp_session session;

    fmtp_client_get_session(c, &session, level);
    return session.mac;
}

/* Transfers a product, which is acknowledged. */
static void transfer(struct fmtp_server *s, struct fmtp_client *c)
{
    static uint8_t data[5000];
    struct iovec part = {data, sizeof data};
    struct fmtp_server_stats stats = {.retained = 1};
    struct tp_error err;

    memset(data, 0x5a, sizeof data);
    memset(received, 0, sizeof received);
    nended = 0;
    assert_int_equal(fmtp_server_offer(s, &part, 1, "x", 1, NULL, NULL, &err), 0);
    for (int i = 0; i < TURNS && (!nended || stats.retained); i++) {
        assert_int_equal(turn(s, c, &err), 0);
        fmtp_server_get_stats(s, &stats);
    }
    assert_int_equal(nended, 1);
    assert_int_equal(stats.retained, 0);
    assert_memory_equal(received, data, sizeof data);
}

/* ------------------------------------------------------------------ levels */

static void test_ours(void **state)
{
    struct fmtp_server *s = open_server(FMTP_MAC_AUTO, NULL);
    struct fmtp_client *c = open_client(s, FMTP_MAC_AUTO, NULL);
    struct tp_error err;
    unsigned level;

    (void)state;
    assert_int_equal(settle(s, c, &err), 0);
    assert_int_equal(kind_of(c, &level), FMTP_MAC_GMAC);
    assert_int_equal(level, 1);
    transfer(s, c);
    struct fmtp_client_stats stats;
    fmtp_client_get_stats(c, &stats);
    assert_int_equal(stats.mac_failures, 0);
    fmtp_client_close(c);
    fmtp_server_close(s);
}

/* Makes an original's connection and gets the sender's answer to its key. */
static struct fmtp_keyx *original(struct fmtp_server *s, int *fd, enum fmtp_keyx_status *status)
{
    struct fmtp_keyx *k = fmtp_keyx_new_receiver(false);
    struct sockaddr_storage at = address("127.0.0.1", fmtp_server_tcp_port(s));
    uint8_t bytes[1024];
    size_t len, used;

    *fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(*fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
    const uint8_t *out = fmtp_keyx_output(k, &len);
    assert_int_equal(send(*fd, out, len, MSG_NOSIGNAL), len);
    *status = FMTP_KEYX_MORE;
    for (int i = 0; i < TURNS && *status == FMTP_KEYX_MORE; i++) {
        turn(s, NULL, NULL);
        ssize_t n = recv(*fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0)
            *status = FMTP_KEYX_BAD;
        else if (n > 0)
            *status = fmtp_keyx_input(k, bytes, (size_t)n, &used);
    }
    return k;
}

/* If an original comes first, it and our receivers are served without MACs; when all are gone, ours
 * have MACs again. An original that comes later is refused and changes nothing. */
static void test_originals(void **state)
{
    struct fmtp_server *s = open_server(FMTP_MAC_AUTO, NULL);
    enum fmtp_keyx_status status;
    struct tp_error err;
    unsigned level;
    size_t len;
    int fd, later;

    (void)state;
    struct fmtp_keyx *k = original(s, &fd, &status);
    assert_int_equal(status, FMTP_KEYX_DONE);
    fmtp_keyx_mac_key(k, &len);
    assert_int_equal(len, 0);
    assert_int_equal(notices[FMTP_NOTICE_NO_MAC], 1);
    fmtp_keyx_free(k);
    struct fmtp_client *c = open_client(s, FMTP_MAC_AUTO, NULL);
    assert_int_equal(settle(s, c, &err), 0);
    assert_int_equal(kind_of(c, &level), FMTP_MAC_NONE);
    assert_int_equal(level, 0);
    fmtp_client_close(c);
    close(fd);
    for (int i = 0; i < TURNS && fmtp_server_receivers(s); i++)
        turn(s, NULL, NULL);
    assert_int_equal(fmtp_server_receivers(s), 0);
    c = open_client(s, FMTP_MAC_AUTO, NULL);
    assert_int_equal(settle(s, c, &err), 0);
    assert_int_equal(kind_of(c, &level), FMTP_MAC_GMAC);
    k = original(s, &later, &status);
    assert_int_equal(status, FMTP_KEYX_BAD);
    assert_int_equal(notices[FMTP_NOTICE_ORIGINAL], 1);
    assert_int_equal(notices[FMTP_NOTICE_NO_MAC], 1);
    transfer(s, c);
    fmtp_keyx_free(k);
    close(later);
    fmtp_client_close(c);
    fmtp_server_close(s);
}

/* ------------------------------------------------------------------ the key */

static const uint8_t one_key[FMTP_KEY_BYTES] = {1, 2, 3}, other_key[FMTP_KEY_BYTES] = {1, 2, 4};

/* what: the notice that the sender gives; not checked if it is 0 (HANDSHAKE) and why is empty. */
static void key_case(const uint8_t *senders, const uint8_t *receivers, int what, const char *why)
{
    struct fmtp_server *s = open_server(FMTP_MAC_AUTO, senders);
    struct fmtp_client *c = open_client(s, FMTP_MAC_AUTO, receivers);
    struct tp_error err = {""};
    struct fmtp_server_stats stats;
    bool good = !*why;

    assert_int_equal(settle(s, c, &err), good ? 0 : -1);
    if (good)
        transfer(s, c);
    else if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    fmtp_client_close(c);
    for (int i = 0; i < TURNS && what >= 0 && !notices[what]; i++)
        turn(s, NULL, NULL);
    fmtp_server_get_stats(s, &stats);
    if (what >= 0) {
        assert_int_equal(notices[what], 1);
        assert_int_equal(stats.strangers, 1);
        assert_int_equal(fmtp_server_receivers(s), 0);
    }
    fmtp_server_close(s);
}

static void test_keys(void **state)
{
    (void)state;
    key_case(one_key, one_key, -1, "");
    key_case(one_key, NULL, FMTP_NOTICE_NO_KEY, "another key");
    key_case(NULL, one_key, -1, "it has no key");
    key_case(one_key, other_key, FMTP_NOTICE_OTHER_KEY, "its key differs");
}

/* A man in the middle replaces the receiver's string by their own, which would reveal the MAC key;
 * replays a recording; changes an answer. */
static void test_man_in_the_middle(void **state)
{
    struct fmtp_keyx *victim = fmtp_keyx_new_receiver(true), *evil = fmtp_keyx_new_receiver(true);
    struct fmtp_keyx *sender = fmtp_keyx_new_sender(), *again = fmtp_keyx_new_sender();
    uint8_t hello[1024], bytes[1024], proof[36] = {0, 0, 0, 32};
    size_t len, hello_len, used;

    (void)state;
    fmtp_keyx_speak(victim, one_key);
    fmtp_keyx_speak(evil, other_key);
    fmtp_keyx_speak(sender, one_key);
    fmtp_keyx_speak(again, one_key);
    const uint8_t *out = fmtp_keyx_output(evil, &len);
    assert_int_equal(fmtp_keyx_input(sender, out, len, &used), FMTP_KEYX_MORE);
    out = fmtp_keyx_output(sender, &len);
    assert_int_equal(fmtp_keyx_input(victim, out, len, &used), FMTP_KEYX_BAD);
    assert_int_equal(fmtp_keyx_distrust(victim), FMTP_KEYX_OTHER_KEY);
    assert_int_equal(fmtp_keyx_input(evil, out, len, &used), FMTP_KEYX_BAD);
    assert_int_equal(fmtp_keyx_input(sender, proof, sizeof proof, &used), FMTP_KEYX_BAD);
    assert_int_equal(fmtp_keyx_distrust(sender), FMTP_KEYX_OTHER_KEY);
    fmtp_keyx_rewind(victim);
    fmtp_keyx_rewind(sender);
    out = fmtp_keyx_output(victim, &hello_len);
    memcpy(hello, out, hello_len);
    assert_int_equal(fmtp_keyx_input(sender, hello, hello_len, &used), FMTP_KEYX_MORE);
    out = fmtp_keyx_output(sender, &len);
    assert_int_equal(fmtp_keyx_input(victim, out, len, &used), FMTP_KEYX_MORE);
    size_t challenge_len = len;
    out = fmtp_keyx_output(victim, &len);
    assert_int_equal(len - hello_len, sizeof proof);
    memcpy(proof, out + hello_len, sizeof proof);
    assert_int_equal(fmtp_keyx_input(sender, proof, sizeof proof, &used), FMTP_KEYX_DONE);
    assert_int_equal(fmtp_keyx_input(again, hello, hello_len, &used), FMTP_KEYX_MORE);
    assert_int_equal(fmtp_keyx_input(again, proof, sizeof proof, &used), FMTP_KEYX_BAD);
    const struct fmtp_session session = {.block_bytes = 1420, .mac = FMTP_MAC_GMAC};
    uint8_t mac_key[32] = {7};
    assert_int_equal(fmtp_keyx_answer(sender, &session, mac_key, sizeof mac_key), 0);
    out = fmtp_keyx_output(sender, &len);
    len -= challenge_len;
    memcpy(bytes, out + challenge_len, len);
    bytes[20] ^= 1;
    assert_int_equal(fmtp_keyx_input(victim, bytes, len, &used), FMTP_KEYX_BAD);
    assert_int_equal(fmtp_keyx_distrust(victim), FMTP_KEYX_OTHER_KEY);
    fmtp_keyx_free(victim);
    fmtp_keyx_free(evil);
    fmtp_keyx_free(sender);
    fmtp_keyx_free(again);
}

static void key_file(const char *text, mode_t mode, const char *why)
{
    char path[] = "/tmp/fmtp-key-XXXXXX";
    int fd = mkstemp(path);
    struct tp_error err;
    uint8_t key[FMTP_KEY_BYTES] = {0};

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    int rc = fmtp_key_read(path, key, &err);
    unlink(path);
    if (!why) {
        assert_int_equal(rc, 0);
        assert_int_equal(key[0], 0xab);
        assert_int_equal(key[31], 0x0f);
        return;
    }
    assert_int_equal(rc, -1);
    if (!strstr(err.text, why) || strncmp(err.text, path, strlen(path)) != 0 ||
        strchr(err.text, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

#define DIGITS62 "Ab0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e"

static void test_key_files(void **state)
{
    uint8_t key[FMTP_KEY_BYTES];
    struct tp_error err;

    (void)state;
    key_file(DIGITS62 "0f\n", 0600, NULL);
    key_file("# of the feed\n\n" DIGITS62 "0f", 0640, NULL);
    key_file(DIGITS62 "0f\n", 0644, ":1: found mode 0644; valid: 0400, 0600 or 0640");
    key_file(DIGITS62 "0f\n", 0660, ":1: found mode 0660");
    key_file("# a\n" DIGITS62 "\n", 0600, ":2: found 62 digits; valid:");
    key_file(DIGITS62 "0g\n", 0600, ":1: found no hexadecimal digit in column 64");
    key_file(DIGITS62 "0f\n" DIGITS62 "0f\n", 0600, ":2: found another line");
    key_file("", 0600, ":1: found no key");
    assert_int_equal(fmtp_key_read("/tmp", key, &err), -1);
    assert_non_null(strstr(err.text, "no regular file"));
    assert_int_equal(fmtp_key_read("/nowhere/key", key, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ours),      cmocka_unit_test(test_originals),
        cmocka_unit_test(test_keys),      cmocka_unit_test(test_man_in_the_middle),
        cmocka_unit_test(test_key_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
