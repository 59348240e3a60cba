/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the parts of conf.c: the parser of ldmd.conf, and what follows when all is read.
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
    dev_t device;               /* which file this is */
    ino_t inode;
};

/* "NAME:LINE: found ...; valid: ...", and counts it. `why`: more, "" for nothing. */
void conf_complain(const struct parser *p, const char *found, const char *valid, const char *why,
                   ...) __attribute__((format(printf, 4, 5)));
/* What can be said only when all is read: values of single feeds, endpoints, interfaces. */
void conf_settle(struct conf *c, FILE *errors);

#endif
