/* SPDX-License-Identifier: Apache-2.0
 *
 * pqact.conf (LDM-6.15.0 pqact.conf). An entry is
 *   feedtype TAB ERE TAB action [options] [arguments]
 * and continues in lines that begin with a blank or tab, as if there were a tab. # begins a comment
 * line. Options and arguments are split as described in words.h, before substitution.
 */
#ifndef PQACT_ACTCONF_H
#define PQACT_ACTCONF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/ere.h"
#include "template.h"

enum act_kind { ACT_NOOP, ACT_FILE, ACT_STDIOFILE, ACT_PIPE, ACT_EXEC };
/* Options. */
enum {
    ACT_OVERWRITE = 1,
    ACT_FLUSH = 2,
    ACT_CLOSE = 4,
    ACT_STRIP = 8,
    ACT_LOG = 16,
    ACT_METADATA = 32,
    ACT_WAIT = 64
};

struct act_entry {
    unsigned line;
    uint32_t feed;
    struct ere *ere; /* NULL: ^_ELSE_$ */
    enum act_kind kind;
    unsigned options;
    struct template **args; /* FILE, STDIOFILE: the path; PIPE, EXEC: the words */
    size_t nargs;
};
/* Returns the name as in the file: "FILE". */
const char *act_kind_name(enum act_kind kind);

struct actconf {
    struct act_entry *entries;
    size_t n, nerrors;
    unsigned spans; /* largest number of groups in an expression, plus 1 */
};

/* Each error is one line `file:line: found "...": why; valid: ...` on errors (may be NULL).
 * data_dir confines FILE and STDIOFILE: their absolute paths must begin with it, and this prefix is
 * removed. Returns 0 if there was no error. Call actconf_free() in any case. */
int actconf_load(struct actconf *c, const char *path, const char *data_dir, FILE *errors);
/* Does the same from memory; name represents the file in messages. */
int actconf_parse(struct actconf *c, const char *name, const char *text, const char *data_dir,
                  FILE *errors);
/* Frees the entries. */
void actconf_free(struct actconf *c);

#endif
