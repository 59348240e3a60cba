/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of conf.c share: the parser of ldmd.conf, and checks after everything is read.
 */
#ifndef LDMD_CONF_IMPL_H
#define LDMD_CONF_IMPL_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "conf.h"

struct parser {
    struct conf *c;
    const char *name;
    unsigned line;
    int depth;
    bool may_include;
    FILE *errors;
    const struct parser *outer; /* the file that includes this one */
    dev_t device;               /* identify the file */
    ino_t inode;
};

/* Writes "NAME:LINE: found ...; valid: ..." and counts the error. `why`: details, or "". */
void conf_complain(const struct parser *p, const char *found, const char *valid, const char *why,
                   ...) __attribute__((format(printf, 4, 5)));
/* Checks what can be checked only when everything is read: values of single feeds, endpoints,
 * interfaces. */
void conf_settle(struct conf *c, FILE *errors);

#endif
