/* SPDX-License-Identifier: Apache-2.0
 *
 * vlanutil: a VLAN's interface on this host, its address, the route to the FMTP server, and at a
 * publisher the rate of what leaves by it (DRFSM21 2.2.3). ip(8) and tc(8), executed without a
 * shell, do all the work.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/tool.h"
#include "plural.h"

#define WORDS_MAX 32
#define OUTPUT_MAX 65536
#define OWNER_MAX 64
#define PATHS "/usr/sbin:/sbin:/usr/bin:/bin"

static const char help[] =
    "Usage: vlanutil create IFACE.VLAN ADDRESS/PREFIX [SERVER]\n"
    "       vlanutil attach IFACE.VLAN ADDRESS/PREFIX [SERVER]\n"
    "       vlanutil destroy IFACE.VLAN [SERVER]\n"
    "       vlanutil shape IFACE[.VLAN] RATE_BPS BUFFER_BYTES GROUP/PREFIX [OTHER_BPS]\n"
    "       vlanutil unshape IFACE[.VLAN]\n"
    "       vlanutil --owner NAME sweep\n"
    "Makes the interface of a VLAN with its address, and with a route to SERVER; removes it;\n"
    "limits an interface's sending: multicast to GROUP (RATE_BPS) and everything else (OTHER_BPS,\n"
    "by default also RATE_BPS); removes that limit; or removes all interfaces of VLANs of NAME.\n"
    "create and attach change nothing if the interface is already right, and replace it otherwise.\n"
    "attach is for a switch whose port tags: its interface (macvlan) sends frames without a tag.\n"
    "\n"
    "      --owner NAME       mark new interfaces with NAME; replace and remove no others\n"
    "      --path DIRS        directories of ip and tc (default " PATHS ")\n"
    "  -n, --dry-run          print the commands that would change something\n" TOOL_HELP_TEXT "\n"
    "Exit status: 0 success, 1 a command failed, 2 bad usage.\n";

enum { OPT_PATH = TOOL_OWN, OPT_OWNER };
static bool dry_run;
static const char *owner; /* NULL: any owner */

/* ------------------------------------------------------------------ commands */

/* Splits at blanks; the words come from checked arguments and from this file. */
static void split(char *line, char *words[WORDS_MAX])
{
    char *rest = NULL;
    int n = 0;

    for (char *w = strtok_r(line, " ", &rest); w && n < WORDS_MAX - 1;
         w = strtok_r(NULL, " ", &rest))
        words[n++] = w;
    words[n] = NULL;
}

/* Executes a command; its output goes to `output` (OUTPUT_MAX bytes) or, if NULL, where ours goes.
 * Returns its exit status, or -1. */
static int execute(const char *command, char *output)
{
    size_t used = 0;
    int fds[2] = {-1, -1}, status = -1;

    char line[512];
    snprintf(line, sizeof line, "%s", command);
    char *words[WORDS_MAX];
    split(line, words);
    if (!words[0])
        return -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (output) {
        if (pipe(fds) < 0) {
            fprintf(stderr, "vlanutil: %s\n", strerror(errno));
            posix_spawn_file_actions_destroy(&actions);
            return -1;
        }
        posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1 /* O_WRONLY */, 0);
        posix_spawn_file_actions_addclose(&actions, fds[0]);
        posix_spawn_file_actions_addclose(&actions, fds[1]);
    }
    pid_t pid;
    int rc = posix_spawnp(&pid, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (output)
        close(fds[1]);
    if (rc == 0) {
        for (ssize_t n = 1; output && n > 0; used += n > 0 ? (size_t)n : 0)
            n = used < OUTPUT_MAX - 1 ? read(fds[0], output + used, OUTPUT_MAX - 1 - used) : 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    } else {
        fprintf(stderr, "vlanutil: cannot execute %s: %s\n", words[0], strerror(rc));
    }
    if (output) {
        output[used] = '\0';
        close(fds[0]);
    }
    return rc == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs a command that changes something. */
static int change(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int change(const char *fmt, ...)
{
    char *command = NULL;
    int rc = -1;

    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&command, fmt, args);
    va_end(args);
    if (n < 0)
        return -1;
    if (dry_run)
        rc = puts(command) < 0 ? -1 : 0;
    else if (execute(command, NULL) == 0)
        rc = 0;
    else
        fprintf(stderr, "vlanutil: failed: %s\n", command);
    free(command);
    return rc;
}

static bool says(const char *command, const char *what)
{
    char output[OUTPUT_MAX];

    return execute(command, output) == 0 && strstr(output, what);
}

/* ------------------------------------------------------------------ arguments */

struct vlan {
    char name[IFNAMSIZ], parent[IFNAMSIZ];
    unsigned id;
    bool untagged; /* the switch's port tags */
};
struct cidr {
    char text[INET_ADDRSTRLEN + 4], broadcast[INET_ADDRSTRLEN];
};

static bool is_interface(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n >= IFNAMSIZ || name[0] == '-' || name[0] == '.')
        return false;
    for (; *name != '\0'; name++)
        if (!isalnum((unsigned char)*name) && !strchr("._-@", *name))
            return false;
    return true;
}

/* The ID follows the last dot, as in eth1.1101. */
static struct vlan vlan_argument(const char *text)
{
    struct vlan v = {.id = 0};
    const char *dot = strrchr(text, '.');

    if (is_interface(text) && dot && dot > text && isdigit((unsigned char)dot[1])) {
        v.id = (unsigned)tool_u64("the VLAN of IFACE.VLAN", dot + 1, 1, 4094);
        memcpy(v.name, text, strlen(text) + 1);
        memcpy(v.parent, text, (size_t)(dot - text));
        return v;
    }
    tool_usage("IFACE.VLAN: found \"%s\"; valid: at most %d characters such as eth1.1101", text,
               IFNAMSIZ - 1);
}

static struct in_addr address_argument(const char *what, const char *text)
{
    struct in_addr a;

    if (inet_pton(AF_INET, text, &a) != 1)
        tool_usage("%s: found \"%s\"; valid: an IPv4 address such as 10.0.0.1", what, text);
    return a;
}

static struct cidr cidr_argument(const char *what, const char *text)
{
    const char *slash = strchr(text, '/');

    char address[INET_ADDRSTRLEN];
    if (!slash || (size_t)(slash - text) >= sizeof address)
        tool_usage("%s: found \"%s\"; valid: an address with its prefix length such as 10.0.0.1/24",
                   what, text);
    memcpy(address, text, (size_t)(slash - text));
    address[slash - text] = '\0';
    struct in_addr a = address_argument(what, address);
    unsigned prefix = (unsigned)tool_u64("prefix length", slash + 1, 1, 32);
    struct in_addr broadcast;
    broadcast.s_addr = a.s_addr | htonl(prefix == 32 ? 0 : UINT32_MAX >> prefix);
    struct cidr c;
    snprintf(c.text, sizeof c.text, "%s/%u", address, prefix);
    inet_ntop(AF_INET, &broadcast, c.broadcast, sizeof c.broadcast);
    return c;
}

/* ------------------------------------------------------------------ verbs */

static bool exists(const struct vlan *v)
{
    char command[128];

    snprintf(command, sizeof command, "ip -o link show dev %s", v->name);
    return says(command, v->name);
}

static bool has_route(const struct vlan *v, const char *server)
{
    char command[128];

    snprintf(command, sizeof command, "ip -o route show %s/32", server);
    char dev[IFNAMSIZ + 8];
    snprintf(dev, sizeof dev, "dev %s ", v->name);
    return says(command, dev);
}

/* Returns whether it has the ID and the address, and nothing needs to be added. */
static bool is_right(const struct vlan *v, const struct cidr *c, const char *server)
{
    char command[128];

    snprintf(command, sizeof command, "ip -d -o link show dev %s up", v->name);
    char kind[32];
    snprintf(kind, sizeof kind, v->untagged ? " macvlan mode passthru " : " id %u ", v->id);
    if (!says(command, kind))
        return false;
    snprintf(command, sizeof command, "ip -o -4 addr show dev %s", v->name);
    char addr[64];
    snprintf(addr, sizeof addr, "inet %s ", c->text);
    return says(command, addr) && (!server || has_route(v, server));
}

/* The mark is the interface's alias (ip-link(8)). */
static bool is_foreign(const struct vlan *v)
{
    char command[128], mark[OWNER_MAX + 16];

    if (!owner || !exists(v))
        return false;
    snprintf(command, sizeof command, "ip -o link show dev %s", v->name);
    snprintf(mark, sizeof mark, "alias %s", owner);
    return !says(command, mark);
}

static int destroy(const struct vlan *v, const char *server)
{
    if (is_foreign(v))
        return 0;
    if (server && has_route(v, server) && change("ip route del %s/32 dev %s", server, v->name) < 0)
        return -1;
    return exists(v) ? change("ip link del dev %s", v->name) : 0;
}

static int create(const struct vlan *v, const struct cidr *c, const char *server)
{
    if (is_right(v, c, server))
        return 0;
    if (is_foreign(v)) {
        fprintf(stderr,
                "vlanutil: found an interface %s that %s did not make; valid: none, or one with "
                "address %s\n",
                v->name, owner, c->text);
        return -1;
    }
    /* passthru: with the NIC's own address, which the switches know. */
    if (destroy(v, NULL) < 0 ||
        change(v->untagged ? "ip link add link %s name %s type macvlan mode passthru"
                           : "ip link add link %s name %s type vlan id %u",
               v->parent, v->name, v->id) < 0)
        return -1;
    if ((!owner || change("ip link set dev %s alias %s", v->name, owner) == 0) &&
        change("ip link set dev %s up", v->name) == 0 &&
        change("ip addr add %s broadcast %s dev %s", c->text, c->broadcast, v->name) == 0 &&
        (!server || change("ip route replace %s/32 dev %s", server, v->name) == 0))
        return 0;
    if (!dry_run)
        (void)change("ip link del dev %s", v->name); /* all or nothing */
    return -1;
}

/* Removes what a process of this owner left when it was killed. */
static int sweep(void)
{
    char output[OUTPUT_MAX], mark[OWNER_MAX + 16], *rest = NULL;
    int rc = 0;

    if (execute("ip -o link show type vlan", output) != 0)
        return 0; /* a kernel without VLANs has none */
    snprintf(mark, sizeof mark, "alias %s", owner);
    for (char *line = strtok_r(output, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[IFNAMSIZ];

        if (strstr(line, mark) && sscanf(line, "%*d: %15[^@: ]", name) == 1 &&
            change("ip link del dev %s", name) < 0)
            rc = -1;
    }
    return rc;
}

static int unshape(const char *interface)
{
    char command[128];

    snprintf(command, sizeof command, "tc qdisc show dev %s", interface);
    return says(command, "qdisc htb 1:") ? change("tc qdisc del dev %s root", interface) : 0;
}

/* Table II: multicast and the rest each have a class with one first-in first-out queue. */
static int shape(const char *interface, const uint64_t rates_bps[2], uint64_t buffer_bytes,
                 const char *group)
{
    if (unshape(interface) < 0 ||
        change("tc qdisc add dev %s root handle 1: htb default 2", interface) < 0)
        return -1;
    for (unsigned class = 1; class <= 2; class ++)
        if (change("tc class add dev %s parent 1: classid 1:%u htb rate %" PRIu64
                   "bit ceil %" PRIu64 "bit",
                   interface, class, rates_bps[class - 1], rates_bps[class - 1]) < 0 ||
            change("tc qdisc add dev %s parent 1:%u handle %u0: bfifo limit %" PRIu64, interface,
                   class, class, buffer_bytes) < 0)
            return -1;
    return change(
        "tc filter add dev %s protocol ip parent 1:0 prio 1 u32 match ip dst %s flowid 1:1",
        interface, group);
}

/* ------------------------------------------------------------------ command line */

static void count(int argc, int min, int max, const char *verb)
{
    if (argc < min || argc > max)
        tool_usage("%s: found %d %s; valid: %d to %d", verb, argc,
                   plural((uint64_t)argc, "argument", "arguments"), min, max);
}

static const char *interface_argument(const char *text)
{
    if (!is_interface(text))
        tool_usage("IFACE: found \"%s\"; valid: an interface's name", text);
    return text;
}

/* One word for ip(8) and for the search. */
static const char *owner_argument(const char *text)
{
    size_t n = strlen(text);

    for (const char *c = text; *c != '\0'; c++)
        n = isalnum((unsigned char)*c) || *c == '-' || *c == '_' ? n : 0;
    if (n == 0 || n > OWNER_MAX || text[0] == '-')
        tool_usage("--owner: found \"%s\"; valid: 1 to %d letters, digits, - or _", text,
                   OWNER_MAX);
    return text;
}

static uint64_t rate_argument(const char *what, const char *text)
{
    return tool_u64(what, text, 1000, UINT64_C(1000000000000));
}

static int run_shape(int argc, char **argv)
{
    count(argc - 1, 4, 5, argv[0]);
    interface_argument(argv[1]);
    struct cidr c = cidr_argument("GROUP/PREFIX", argv[4]);
    uint64_t rates[2] = {rate_argument("RATE_BPS", argv[2])};
    rates[1] = argc > 5 ? rate_argument("OTHER_BPS", argv[5]) : rates[0];
    return shape(argv[1], rates, tool_u64("BUFFER_BYTES", argv[3], 1, UINT32_MAX), c.text);
}

static int run(int argc, char **argv)
{
    const char *verb = argc > 0 ? argv[0] : "";
    struct cidr c;

    struct vlan v;
    if (strcmp(verb, "create") == 0 || strcmp(verb, "attach") == 0) {
        count(argc - 1, 2, 3, verb);
        v = vlan_argument(argv[1]);
        v.untagged = verb[0] == 'a';
        c = cidr_argument("ADDRESS/PREFIX", argv[2]);
        if (argc > 3)
            address_argument("SERVER", argv[3]);
        return create(&v, &c, argc > 3 ? argv[3] : NULL);
    }
    if (strcmp(verb, "destroy") == 0) {
        count(argc - 1, 1, 2, verb);
        v = vlan_argument(argv[1]);
        if (argc > 2)
            address_argument("SERVER", argv[2]);
        return destroy(&v, argc > 2 ? argv[2] : NULL);
    }
    if (strcmp(verb, "shape") == 0)
        return run_shape(argc, argv);
    if (strcmp(verb, "unshape") == 0) {
        count(argc - 1, 1, 1, verb);
        return unshape(interface_argument(argv[1]));
    }
    if (strcmp(verb, "sweep") == 0) {
        count(argc - 1, 0, 0, verb);
        if (!owner)
            tool_usage("sweep: found no --owner; valid: --owner NAME%s", "");
        return sweep();
    }
    tool_usage("found \"%s\"; valid: create, attach, destroy, shape, unshape or sweep", verb);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"path", required_argument, NULL, OPT_PATH},
                                          {"owner", required_argument, NULL, OPT_OWNER},
                                          {"dry-run", no_argument, NULL, 'n'},
                                          TOOL_LONG,
                                          {0}};
    const char *path = PATHS;

    log_init(argc, &argv);
    int opt;
    while ((opt = getopt_long(argc, argv, TOOL_SHORT "n", longs, NULL)) != -1)
        switch (opt) {
        case OPT_PATH: path = optarg; break;
        case OPT_OWNER: owner = owner_argument(optarg); break;
        case 'n': dry_run = true; break;
        default: tool_option(opt, help);
        }
    /* Whatever our caller's environment is, root executes the system's commands. */
    if (setenv("PATH", path, 1) < 0 || setenv("LC_ALL", "C", 1) < 0)
        return TOOL_SYSTEM;
    return run(argc - optind, argv + optind) == 0 ? TOOL_OK : TOOL_SYSTEM;
}
