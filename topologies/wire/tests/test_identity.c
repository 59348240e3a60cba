/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "identity.h"

/* The packets of experiments/tests/golden/loss-hash.txt: both implementations must produce these
 * hashes. */
static const struct {
    const char *name;
    uint64_t seed;
    uint32_t hash;
    const char *packet; /* its beginning in hexadecimal; zeros follow up to its length */
} golden[] = {
    {"mem-data", UINT64_C(0x0123456789abcdef), UINT32_C(0x8f01eab0),
     "450005d0000040001011abcd0a000001ef0102039c40979005bc0000000000010002086005a80004"
     "01020304"},
    {"eop", UINT64_C(0xfedcba9876543210), UINT32_C(0x50bd617a),
     "45000028000040001011abcd0a000001ef0102039c40979000140000000000070000000000000002"
     ""},
    {"tcp", UINT64_C(0x0123456789abcdef), UINT32_C(0x1f66bd26),
     "450005dc123440001006abcd0a000001ef01020301849c40010203040506070880100200aabb0000"
     "0101080a00001388000000637879"},
    {"short-udp", UINT64_C(0x0123456789abcdef), UINT32_C(0x63827002),
     "45000027000040001011abcd0a000001ef0102039c409790001300000102030405060708090a0b"
     ""},
    {"options", UINT64_C(0x0000000000000001), UINT32_C(0x19ae2edf),
     "4600003c000040001011abcd0a000001ef0102035a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"
     "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"},
};

enum { ROOM = 1600, ETHERNET = 14 };

static size_t unhex(uint8_t *to, const char *text)
{
    size_t n = strlen(text) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        to[i] = (uint8_t)byte;
    }
    return n;
}

/* Writes a frame with `tags` VLAN tags around the packet; returns its size. */
static size_t frame_with(uint8_t *frame, unsigned tags, const char *packet)
{
    memset(frame, 0, ROOM);
    size_t at = 12;
    for (unsigned i = 0; i < tags; i++, at += 4) {
        frame[at] = i == 0 && tags == 2 ? 0x88 : 0x81;
        frame[at + 1] = i == 0 && tags == 2 ? 0xa8 : 0x00;
        frame[at + 3] = 7;
    }
    frame[at] = 0x08;
    uint8_t *ip = frame + at + 2;
    unhex(ip, packet);
    return at + 2 + ((size_t)ip[2] << 8 | ip[3]);
}

static void test_golden(void **state)
{
    (void)state;
    uint8_t frame[ROOM];
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        for (unsigned tags = 0; tags <= 2; tags++) {
            uint32_t hash = 0;
            size_t size = frame_with(frame, tags, golden[i].packet);
            assert_true(identity_hash(frame, size, golden[i].seed, &hash));
            assert_int_equal(hash, golden[i].hash);
            /* Ethernet pads short packets: the padding does not belong to the packet. */
            memset(frame + size, 0xff, 20);
            assert_true(identity_hash(frame, size + 20, golden[i].seed, &hash));
            assert_int_equal(hash, golden[i].hash);
        }
    }
}

static void test_not_ipv4(void **state)
{
    (void)state;
    uint8_t frame[ROOM];
    uint32_t hash = 0;
    size_t size = frame_with(frame, 1, golden[0].packet);
    for (size_t cut = 1; cut < size; cut++) {
        uint8_t *copy = malloc(cut); /* exact size: the sanitizer detects a read past the end */
        assert_non_null(copy);
        assert_false(identity_hash(memcpy(copy, frame, cut), cut, 1, &hash));
        free(copy);
    }
    size = frame_with(frame, 0, golden[0].packet);
    frame[13] = 6; /* ARP */
    assert_false(identity_hash(frame, size, 1, &hash));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_not_ipv4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
