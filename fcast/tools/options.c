/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fcast_program = "fcast";
volatile int stop_requested;

static void complain(const char *format, va_list args)
{
    fprintf(stderr, "%s: ", fcast_program);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(format, args);
    va_end(args);
    exit(EXIT_FAILURE);
}

void fail_usage(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(format, args);
    va_end(args);
    exit(FCAST_EXIT_USAGE);
}

uint64_t option_number(const char *option, const char *text, uint64_t min, uint64_t max)
{
    char *end = NULL;
    uint64_t factor = 1;

    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (end != text && *end) {
        factor = *end == 'k' ? 1000 : *end == 'M' ? 1000000 : *end == 'G' ? 1000000000 : 0;
        end++;
    }
    if (!isdigit((unsigned char)*text) || errno || *end || !factor || n > max / factor ||
        n * factor < min)
        fail_usage("%s '%s': valid are whole numbers from %llu to %llu, also with k, M or G",
                   option, text, (unsigned long long)min, (unsigned long long)max);
    return n * factor;
}

struct sockaddr_storage option_address(const char *option, const char *text)
{
    struct sockaddr_storage a;

    if (tp_address_parse(text, false, &a) < 0)
        fail_usage("%s '%s': valid is an address such as 10.0.0.1 or fd00::1", option, text);
    return a;
}

struct sockaddr_storage option_endpoint(const char *option, const char *text)
{
    struct sockaddr_storage a;

    if (tp_address_parse(text, true, &a) < 0 || !tp_address_is_multicast(&a))
        fail_usage("%s '%s': valid is a multicast group such as 239.99.99.99:1711 or "
                   "[ff15::1]:1711",
                   option, text);
    return a;
}

int option_word(const char *option, const char *text, const char *const *words, int count)
{
    char valid[256] = "";

    for (int i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0)
            return i;
        size_t used = strlen(valid);
        snprintf(valid + used, sizeof valid - used, "%s%s", i ? ", " : "", words[i]);
    }
    fail_usage("%s '%s': valid are %s", option, text, valid);
}

void option_key(const char *path, uint8_t key[TP_KEY_BYTES])
{
    struct tp_error err;

    if (tp_key_read(path, TP_KEY_OWNER, key, &err) < 0)
        fail_usage("%s", err.text);
}

static void on_signal(int number)
{
    (void)number;
    stop_requested = 1;
}

void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}
