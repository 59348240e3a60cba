/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to the path service and its answers as text (docs/reference/contracts.md, "Controller").
 * Answers come from the network: any bytes are accepted, at most PATH_BODY_MAX of them; unknown
 * members are ignored.
 */
#ifndef LDMD_PATHREST_H
#define LDMD_PATHREST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PATH_BODY_MAX (1u << 20)
#define PATH_SWITCH_MAX 64u /* bytes of a switch's name */
#define PATH_NAME_MAX 64u   /* bytes of a path's name */
#define PATH_LEAVES_MAX 4096u
#define PATH_TEXT_MAX 512u

/* An end of a path: a VLAN at a port of a switch. */
struct path_endpoint {
    char switch_id[PATH_SWITCH_MAX + 1];
    uint32_t port;
    uint16_t vlan;
};
/* Sets it from the strings of a subscription or configuration file. Returns false; *why, a
 * constant, says what is wrong. */
bool path_endpoint_set(struct path_endpoint *e, const char *switch_id, const char *port,
                       unsigned vlan, const char **why);
/* Returns whether switch, port and VLAN are the same. */
bool path_endpoint_equal(const struct path_endpoint *a, const struct path_endpoint *b);
#define PATH_ENDPOINT_TEXT (PATH_SWITCH_MAX + 20u)
/* Formats "switch:port:vlan". Returns out. */
char *path_endpoint_format(const struct path_endpoint *e, char out[PATH_ENDPOINT_TEXT]);

struct path_view_leaf {
    struct path_endpoint at;
    bool down; /* the service says that it is not served at present */
};
struct path_view {
    char name[PATH_NAME_MAX + 1];
    struct path_endpoint root;
    uint64_t rate_bps;
    struct path_view_leaf *leaves;
    size_t nleaves;
};
struct path_request {
    enum path_method { PATH_GET, PATH_POST, PATH_DELETE } method;
    char target[512]; /* such as /v1/paths/NGRID */
    char body[512];   /* JSON; empty: none */
    bool brief;       /* a summary is enough for an answer (RFC 7240) */
};
/* POST /v1/paths: creates the path, or confirms that it exists. */
void path_request_create(struct path_request *r, const char *name, const struct path_endpoint *root,
                         uint64_t rate_bps);
/* POST to the path's leaves. */
void path_request_add(struct path_request *r, const char *name, const struct path_endpoint *leaf);
/* DELETE of one leaf. */
void path_request_remove(struct path_request *r, const char *name,
                         const struct path_endpoint *leaf);
/* GET or DELETE of the path itself. */
void path_request_path(struct path_request *r, enum path_method method, const char *name);

/* Parses the description of a path. Returns false if it is invalid; why (a constant) says what is
 * missing. Call path_view_free() in any case. */
bool path_view_parse(struct path_view *v, const char *body, size_t n, const char **why);
/* Parses its summary: only name and state. Returns false if it is invalid. */
bool path_summary_parse(const char *body, size_t n, char name[PATH_NAME_MAX + 1], bool *is_up);
/* Returns the leaf at that endpoint, or NULL. */
const struct path_view_leaf *path_view_find(const struct path_view *v,
                                            const struct path_endpoint *at);
/* Frees the leaves. */
void path_view_free(struct path_view *v);

/* Gives "title: detail" of an RFC 9457 problem; of anything else its beginning. Returns out. */
char *path_problem_text(const char *body, size_t n, char *out, size_t out_bytes);
/* Returns whether the body is the problem of type urn:downpour:problem:KIND. */
bool path_problem_is(const char *body, size_t n, const char *kind);

#endif
