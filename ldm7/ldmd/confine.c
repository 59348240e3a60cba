/* SPDX-License-Identifier: Apache-2.0 */
#include "confine.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "sandbox.h"

#define DNS_PORT 53
#define PATH_BYTES 4096

/* Path names that must remain valid until the sandbox is entered. */
struct texts {
    char queue[PATH_BYTES], log[PATH_BYTES], token[PATH_BYTES];
};

static const char *directory_of(char out[PATH_BYTES], const char *path)
{
    const char *slash = strrchr(path, '/');
    int n = !slash ? 1 : slash == path ? 1 : (int)(slash - path);

    snprintf(out, PATH_BYTES, "%.*s", n, slash ? path : ".");
    return out;
}

/* `beside`: its rights to files beside the queue (product-index maps, session memories). A log file
 * is reopened after a rotation. */
static void set_up(struct sandbox *s, struct texts *t, const struct options *opt, bool whole_etc,
                   unsigned beside)
{
    sandbox_init(s, whole_etc);
    sandbox_path(s, opt->queue, SANDBOX_READ | SANDBOX_WRITE);
    sandbox_path(s, directory_of(t->queue, opt->queue), beside);
    if (log_file()[0] != '\0')
        sandbox_path(s, directory_of(t->log, log_file()), SANDBOX_WRITE | SANDBOX_CREATE);
}

static int enter(const struct sandbox *s, const struct options *opt)
{
    char why[128], text[SANDBOX_TEXT];
    struct sandbox_state has =
        sandbox_probe(); /* in the sandbox, everything would seem to be missing */

    if (!opt->sandbox)
        return 0;
    if (sandbox_enter(s, why, sizeof why) < 0) {
        log_error("cannot enter the sandbox: %s; \"SET ldmd.sandbox off\" disables it", why);
        return -1;
    }
    log_debug("sandbox: %s", sandbox_text(&has, text));
    return 0;
}

int confine_connection(const struct options *opt)
{
    struct sandbox s;
    struct texts t;

    set_up(&s, &t, opt, false, SANDBOX_READ);
    sandbox_connect(&s, DNS_PORT); /* for host names; large answers come by TCP */
    s.signals = true;              /* IS_ALIVE, older feeds of the same address */
    return enter(&s, opt);
}

int confine_mldm(const struct options *opt, const struct conf_multicast *entry)
{
    const struct conf_settings *set = &opt->conf->set;
    struct sandbox s;
    struct texts t;

    set_up(&s, &t, opt, true, SANDBOX_FILES);
    sandbox_bind(&s, entry->fmtp_port);
    sandbox_bind(&s, 0);
    s.connects_anywhere = true; /* the path service */
    if (set->path_token_file[0] != '\0')
        sandbox_path(&s, directory_of(t.token, set->path_token_file), SANDBOX_READ);
    if (set->path_ca_file[0] != '\0')
        sandbox_path(&s, set->path_ca_file, SANDBOX_READ);
    return enter(&s, opt);
}

int confine_down6(const struct options *opt)
{
    struct sandbox s;
    struct texts t;

    set_up(&s, &t, opt, true, SANDBOX_FILES);
    s.connects_anywhere = true;
    return enter(&s, opt);
}

int confine_down7(const struct options *opt)
{
    struct sandbox s;
    struct texts t;

    set_up(&s, &t, opt, true, SANDBOX_FILES);
    sandbox_bind(&s, 0); /* FMTP's connection leaves from the interface's address */
    s.connects_anywhere = true;
    s.forks = true; /* down6 while there is no multicast */
    return enter(&s, opt);
}

void confine_report(const struct options *opt)
{
    char text[SANDBOX_TEXT];
    struct sandbox_state has = sandbox_probe();

    if (!opt->sandbox)
        log_warn("Sandbox: off");
    else if (!has.seccomp || has.landlock == 0)
        log_warn("Sandbox: %s", sandbox_text(&has, text));
    else
        log_note("Sandbox: %s", sandbox_text(&has, text));
}
