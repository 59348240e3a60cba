/* SPDX-License-Identifier: Apache-2.0 */
#include "confine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

char *directory_of(const char *path)
{
    char *text = xstrdup(path), *slash = strrchr(text, '/');

    if (slash) {
        slash[slash == text] = '\0';
        return text;
    }
    free(text);
    return xstrdup(".");
}

void confine(const struct sandbox *s, bool off)
{
    char why[128], text[SANDBOX_TEXT];
    struct sandbox_state has = sandbox_probe();

    if (!off && sandbox_enter(s, why, sizeof why) < 0)
        die("cannot enter the sandbox: %s; --no-sandbox disables it", why);
    fprintf(stderr, "%s: sandbox: %s\n", program, off ? "off" : sandbox_text(&has, text));
}
