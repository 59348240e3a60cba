/* SPDX-License-Identifier: Apache-2.0
 *
 * ctcp-load: registers Circuit TCP (ctcp.bpf.c) as a congestion control of the kernel and keeps it
 * registered until SIGTERM or SIGINT. If the kernel has links for struct_ops (Linux >= 6.4), the
 * registration ends with this process however that ends; on older kernels a kill -9 leaves it
 * registered and `--unregister` removes it.
 *
 * Exit codes: 0 done, 1 the kernel refused, 2 bad usage or object file.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <getopt.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* linux/bpf.h may be older than the kernel. */
#define LINK_FLAG (1U << 13)                         /* BPF_F_LINK */
#define STRUCT_OPS_ATTACH ((enum bpf_attach_type)44) /* BPF_STRUCT_OPS */

#define NAME_SIZE 16 /* TCP_CA_NAME_MAX, with the final NUL */
#define PLACEHOLDER "@ctcp-load:name"
#define CWND_MAX 1000000
#define OBJECT_MAX (16 << 20)
#define VALUE_MAX (64 << 10)

static const char usage[] =
    "usage: ctcp-load --object FILE --name NAME --cwnd SEGMENTS [--no-link]\n"
    "       ctcp-load --unregister NAME\n"
    "       ctcp-load --help\n"
    "NAME: 'ctcp_' and 1 to 10 of a-z, 0-9; SEGMENTS: 1 to 1000000\n";

/* libbpf's messages, shown only if all attempts fail. */
static char said[8192];

static int keep(enum libbpf_print_level level, const char *format, va_list arguments)
{
    size_t used = strlen(said);
    if (level == LIBBPF_DEBUG || used >= sizeof said - 1)
        return 0;
    return vsnprintf(said + used, sizeof said - used, format, arguments);
}

static bool name_is_valid(const char *name)
{
    size_t length = strlen(name);
    return strncmp(name, "ctcp_", 5) == 0 && length > 5 && length < NAME_SIZE &&
           strspn(name + 5, "abcdefghijklmnopqrstuvwxyz0123456789") == length - 5;
}

/* Returns the object file with the placeholder replaced by `name`; NULL after a message. */
static char *read_object(const char *path, const char *name, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "ctcp-load: %s: %s\n", path, strerror(errno));
        return NULL;
    }
    char *bytes = malloc(OBJECT_MAX);
    *size = bytes ? fread(bytes, 1, OBJECT_MAX, file) : 0;
    fclose(file);
    char *at = *size > 0 ? memmem(bytes, *size, PLACEHOLDER, NAME_SIZE) : NULL;
    if (!at) {
        fprintf(stderr, "ctcp-load: %s: not the object of ctcp.bpf.c; valid: ctcp.bpf.o\n", path);
        free(bytes);
        return NULL;
    }
    memset(at, 0, NAME_SIZE);
    memcpy(at, name, strlen(name));
    return bytes;
}

/* Loads the object (and, without links, registers it). Returns NULL if the kernel refuses. `link`
 * keeps it registered. */
static struct bpf_object *load(const char *bytes, size_t size, unsigned cwnd, bool linked,
                               struct bpf_link **link, int *link_fd)
{
    struct bpf_object_open_opts options = {.sz = sizeof options, .object_name = "ctcp"};
    struct bpf_object *object = bpf_object__open_mem(bytes, size, &options);
    if (!object)
        return NULL;
    struct bpf_map *operations = NULL;
    bool set = false;
    struct bpf_map *map;
    bpf_object__for_each_map(map, object)
    {
        size_t length = 0;
        if (bpf_map__type(map) == BPF_MAP_TYPE_STRUCT_OPS)
            operations = map;
        else if (bpf_map__initial_value(map, &length) && length == sizeof cwnd)
            set = bpf_map__set_initial_value(map, &cwnd, sizeof cwnd) == 0;
    }
    if (!operations || !set || (linked && bpf_map__set_map_flags(operations, LINK_FLAG) != 0) ||
        bpf_object__load(object) != 0)
        goto refused;
    *link = bpf_map__attach_struct_ops(operations);
    if (!*link)
        goto refused;
    /* Before 1.2, libbpf fills in the map but does not create links. */
    bool links_itself = libbpf_major_version() > 1 || libbpf_minor_version() >= 2;
    if (linked && !links_itself) {
        *link_fd = bpf_link_create(bpf_map__fd(operations), 0, STRUCT_OPS_ATTACH, NULL);
        if (*link_fd < 0)
            goto refused;
    }
    return object;
refused:
    bpf_object__close(object);
    return NULL;
}

/* Removes the congestion control `name` that a killed loader left behind (only without links). The
 * kernel shows a struct_ops map's value, which contains the name. */
static int unregister(const char *name)
{
    static unsigned char value[VALUE_MAX];
    unsigned id = 0, zero = 0;
    int removed = 0;
    while (bpf_map_get_next_id(id, &id) == 0) {
        int fd = bpf_map_get_fd_by_id(id);
        if (fd < 0)
            continue;
        struct bpf_map_info info = {0};
        unsigned length = sizeof info;
        if (bpf_obj_get_info_by_fd(fd, &info, &length) == 0 &&
            info.type == BPF_MAP_TYPE_STRUCT_OPS && info.value_size <= sizeof value &&
            bpf_map_lookup_elem(fd, &zero, value) == 0 &&
            memmem(value, info.value_size, name, strlen(name) + 1) &&
            bpf_map_delete_elem(fd, &zero) == 0)
            removed++;
        close(fd);
    }
    if (removed == 0) {
        fprintf(stderr, "ctcp-load: found no '%s' that can be unregistered\n", name);
        return 1;
    }
    return 0;
}

static int hold(const char *path, const char *name, unsigned cwnd, bool may_link)
{
    size_t size = 0;
    char *bytes = read_object(path, name, &size);
    if (!bytes)
        return 2;
    /* Blocked before registration, so that a signal cannot end us halfway. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    struct bpf_link *link = NULL;
    int link_fd = -1;
    bool linked = may_link;
    struct bpf_object *object = load(bytes, size, cwnd, linked, &link, &link_fd);
    if (!object && may_link) {
        linked = false;
        object = load(bytes, size, cwnd, linked, &link, &link_fd);
    }
    free(bytes);
    if (!object) {
        fprintf(stderr, "ctcp-load: the kernel does not accept %s: %s", path,
                said[0] != '\0' ? said : "no reason given\n");
        return 1;
    }
    printf("ready name=%s cwnd=%u link=%d\n", name, cwnd, linked);
    fflush(stdout);
    int number;
    while (sigwait(&ends, &number) != 0)
        ;
    if (link_fd >= 0)
        close(link_fd);
    bpf_link__destroy(link);
    bpf_object__close(object);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"object", required_argument, NULL, 'o'},
        {"name", required_argument, NULL, 'n'},
        {"cwnd", required_argument, NULL, 'c'},
        {"no-link", no_argument, NULL, 'l'},
        {"unregister", required_argument, NULL, 'u'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *object = NULL, *name = NULL, *gone = NULL;
    unsigned long cwnd = 0;
    bool may_link = true;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        char *end;
        switch (option) {
        case 'o': object = optarg; break;
        case 'n': name = optarg; break;
        case 'u': gone = optarg; break;
        case 'l': may_link = false; break;
        case 'c':
            errno = 0;
            cwnd = strtoul(optarg, &end, 10);
            if (errno != 0 || *end != '\0' || optarg[0] < '0' || optarg[0] > '9' || cwnd < 1 ||
                cwnd > CWND_MAX) {
                fprintf(stderr, "ctcp-load: found --cwnd '%s'; valid: 1 to %d\n", optarg, CWND_MAX);
                return 2;
            }
            break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    const char *named = gone ? gone : name;
    if (named && !name_is_valid(named)) {
        fprintf(stderr, "ctcp-load: found name '%s'; valid: 'ctcp_' and 1 to 10 of a-z, 0-9\n",
                named);
        return 2;
    }
    bool holding = object && name && cwnd > 0;
    if (optind != argc || !gone == !holding || (gone && (object || name || cwnd))) {
        fputs(usage, stderr);
        return 2;
    }
    libbpf_set_print(keep);
    return gone ? unregister(gone) : hold(object, name, (unsigned)cwnd, may_link);
}
