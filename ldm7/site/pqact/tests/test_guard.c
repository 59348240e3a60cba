/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands of PIPE and EXEC: no identifier chooses a program or is read as one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "site/pqact/actconf.h"

/* Returns the number of errors of an entry with this command; the messages are in `said`. */
static size_t errors(const char *command, char *said, size_t room)
{
    char text[500], *messages = NULL;
    struct actconf c;
    size_t n;

    snprintf(text, sizeof text, "\n\nANY\t^(.*)/(.*)\tEXEC\t%s\n", command);
    FILE *f = open_memstream(&messages, &n);
    actconf_parse(&c, "pqact.conf", text, "/data", f);
    fclose(f);
    snprintf(said, room, "%s", messages);
    free(messages);
    size_t found = c.nerrors;
    actconf_free(&c);
    return found;
}

static void refused(void **state)
{
    static const char *const commands[] = {
        /* shells, their options, and their directories */
        "sh -c \\1",
        "sh -c 'echo \\1'",
        "/bin/sh -c \\1",
        "/usr/bin/../bin/bash -c 'a; \\2'",
        "dash -ec \\1",
        "bash -xec \\1",
        "bash -lc 'x \\1'",
        "bash --norc -c \\1",
        "bash -c -e \\1",
        "bash -c -- \\1",
        "bash -o pipefail -c \\1",
        "bash -oe pipefail -c \\1",
        "bash +o posix -c \\1",
        "bash -O extglob -c \\1",
        "bash --rcfile \\1",
        "bash --rcfile x -c \\1",
        "zsh -fc \\1",
        "fish --command=\\1",
        "fish -c \\1",
        "csh -fc \\1",
        "ksh93 -c \\1",
        "sh \\1",
        "sh -x \\1",
        "sh -- \\1",
        "bash -c\\1",
        "bash -i -c \\1",
        "busybox sh -c \\1",
        "/bin/busybox ash -c \\1",
        "busybox.static sh -c \\1",
        "sh -c '(\\1:dd)'",
        /* other interpreters */
        "python -c \\1",
        "python3 -c 'print(\"\\1\")'",
        "python3.11 -Ic \\1",
        "python3 -W ignore -c \\1",
        "python3 -m \\1",
        "/usr/bin/python3 \\1",
        "pypy3 -c \\1",
        "perl -e \\1",
        "perl -ne \\1",
        "perl -pe 's/\\1//'",
        "perl -wlne \\1",
        "perl -e 'x' -e \\1",
        "perl -E \\1",
        "perl -e\\1",
        "perl -I \\1 script.pl",
        "perl -M\\1 script.pl",
        "perl5.36 -e \\1",
        "ruby -e \\1",
        "node -e \\1",
        "node --eval \\1",
        "node --eval=\\1",
        "node -p \\1",
        "php -r \\1",
        "lua5.4 -e \\1",
        "awk \\1",
        "awk '/\\1/'",
        "gawk -e \\1",
        "awk -v x=\\1 '{print x}'",
        "awk -f \\1",
        "sed \\1",
        "sed s/x/\\1/",
        "sed -e \\1",
        "sed -n -e p -e \\1",
        "sed p file -e \\1",
        "jq \\1",
        "Rscript -e \\1",
        "julia -E \\1",
        "tclsh \\1",
        "emacs --batch --eval \\1",
        "vim -c \\1",
        "make -f \\1",
        "psql -c \\1",
        "gdb -ex \\1",
        /* through other programs */
        "env sh -c \\1",
        "env A=b sh -c \\1",
        "env -i bash -c \\1",
        "env -u X bash -c \\1",
        "/usr/bin/env python3 -c \\1",
        "env -S 'sh -c' \\1",
        "env --split-string='sh -c' \\1",
        "nice sh -c \\1",
        "nice -n 5 sh -c \\1",
        "nice -5 perl -e \\1",
        "nohup bash -c \\1",
        "nohup nice -n 19 env X=y /bin/bash -ec \\1",
        "setsid sh -c \\1",
        "timeout 5 sh -c \\1",
        "timeout -k 5 10s sh -c \\1",
        "stdbuf -oL awk \\1",
        "ionice -c 3 sh -c \\1",
        "sudo -u ldm sh -c \\1",
        "xargs -I x sh -c \\1",
        "flock /lock sh -c \\1",
        "flock /lock -c \\1",
        "find . -exec sh -c \\1",
        "time -p sh -c \\1",
        "su -c \\1",
        "su ldm -c \\1",
        "script -c \\1",
        "ssh host \\1",
        "ssh host decode \\1",
        "watch \\1",
        "parallel sh -c \\1",
        "unknown-wrapper sh -c \\1",
        "unknown-wrapper -x 3 /bin/bash -ec '\\1'",
        "ip netns exec x sh -c \\1",
        "docker run image sh -c \\1",
        "chroot /x sh -c \\1",
        /* the identifier would choose the program */
        "\\1",
        "\\1 x",
        "env \\1",
        "env A=b \\1",
        "env A=\\1 decode",
        "nice -n 5 \\1",
        "nohup \\1",
        "timeout 5 \\1",
        "busybox \\1",
        "xargs \\1",
        "flock /lock \\1",
        "nice nohup \\1",
    };

    unsigned wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char said[600];
        size_t n = errors(commands[i], said, sizeof said);
        if (n != 1)
            wrong += (unsigned)printf("%zu errors: %s\n", n, commands[i]);
        const char *end = strchr(said, '\n');
        if (strncmp(said, "pqact.conf:3: found \"", 21) != 0 || !strstr(said, "; valid: ") ||
            !end || end[1] != '\0')
            wrong += (unsigned)printf("%s: %s\n", commands[i], said);
    }
    assert_int_equal(wrong, 0);
}

/* An identifier that is only an argument is accepted. */
static void taken(void **state)
{
    static const char *const commands[] = {
        "decode \\1",
        "decode -c \\1",
        "decode -e \\1 --station=\\2",
        "/opt/bin/decode \\1",
        "sh -c 'echo \"$1\"' sh \\1",
        "bash -xec 'echo \"$1\"' sh \\1",
        "bash -o pipefail -c 'x' sh \\1",
        "sh script.sh \\1",
        "/bin/sh /opt/script.sh -e \\1",
        "bash -x script.sh \\1",
        "sh -c 'x' -c \\1",
        "python3 script.py \\1",
        "python3 -u script.py --station \\1",
        "python3 -m decoder \\1",
        "python3 -c 'import sys' \\1",
        "python3 -Wignore script.py \\1",
        "perl script.pl \\1",
        "perl -w script.pl --station=\\1",
        "perl -Ilib script.pl \\1",
        "perl -ne 'print' \\1",
        "perl -e 'x' \\1",
        "awk '{print}' \\1",
        "awk -f x.awk \\1",
        "sed -n p \\1",
        "sed -e p \\1",
        "env decode \\1",
        "env A=b decode \\1",
        "nice decode \\1",
        "nice -n 5 decode \\1",
        "nohup nice -n 5 decode -c \\1",
        "timeout 5 decode \\1",
        "timeout 10s sh script.sh \\1",
        "env A=b sh -c 'echo \"$1\"' sh \\1",
        "busybox touch \\1",
        "flock /lock decode \\1",
        "ssh host decode",
        "sh -c 'echo a'",
        "grep -c \\1 file",
        "touch \\1",
        "logger -t pqact \\1",
    };

    unsigned wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char said[600];
        if (errors(commands[i], said, sizeof said) != 0)
            wrong += (unsigned)printf("%s: %s\n", commands[i], said);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused), cmocka_unit_test(taken)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
