/* SPDX-License-Identifier: Apache-2.0 */
#include "pathclient.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

#define HEADERS_MAX 65536u
#define CONNECT_MS 5000L

struct pathclient {
    struct loop *loop;
    const struct conf_settings *set;
    struct pathservice *core;
    char service[CONF_SERVICES]; /* the one in use */
    size_t service_end;          /* where it ends in the list */
    CURLM *multi;
    CURL *easy;
    uint64_t timer_ns; /* set by curl; LOOP_FOREVER: none */
    bool busy;
    struct path_request request; /* while busy: curl points into it */
    struct curl_slist *headers;
    char *body;
    size_t body_bytes, header_bytes;
    bool too_long;
    unsigned retry_after_s;
    char error[CURL_ERROR_SIZE];
};

int pathclient_token(const char *path, char out[PATH_TOKEN_MAX], char *why, size_t why_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = -1;

    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0)
        n = read(fd, out, PATH_TOKEN_MAX);
    why[0] = '\0';
    if (n < 0)
        snprintf(why, why_bytes, "cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        snprintf(why, why_bytes, "%s is not a regular file", path);
    else if ((st.st_mode & 077) != 0)
        snprintf(why, why_bytes, "%s has mode %04o; valid: 0600 or 0400", path,
                 st.st_mode & 07777u);
    if (fd >= 0)
        close(fd);
    if (why[0] != '\0')
        return -1;
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == '\r'))
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (out[i] <= ' ' || out[i] > '~')
            n = 0;
    if (n <= 0 || n >= (ssize_t)PATH_TOKEN_MAX) {
        snprintf(why, why_bytes, "%s holds no token; valid: one line of 1 to %u graphic characters",
                 path, PATH_TOKEN_MAX - 1);
        return -1;
    }
    out[n] = '\0';
    return 0;
}

/* ------------------------------------------------------------------ what curl calls */

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    struct pathclient *c = ctx;

    n *= size;
    if (n > PATH_BODY_MAX - c->body_bytes) {
        c->too_long = true;
        return 0; /* makes curl give up */
    }
    memcpy(c->body + c->body_bytes, data, n);
    c->body_bytes += n;
    return n;
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    static const char retry[] = "Retry-After:";
    struct pathclient *c = ctx;
    size_t at = sizeof retry - 1, digits = 0;

    n *= size;
    c->header_bytes += n;
    if (c->header_bytes > HEADERS_MAX) {
        c->too_long = true;
        return 0;
    }
    if (n > at && strncasecmp(line, retry, at) == 0) {
        while (at < n && line[at] == ' ')
            at++;
        char number[16];
        while (at < n && digits < 9 && line[at] >= '0' && line[at] <= '9')
            number[digits++] = line[at++];
        number[digits] = '\0';
        c->retry_after_s = (unsigned)strtoul(number, NULL, 10);
    }
    return n;
}

static void on_socket(void *ctx, uint32_t events);

struct watch {
    struct pathclient *owner;
    struct loop_source src;
};

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
    struct pathclient *c = ctx;
    struct watch *w = socket_ctx;
    uint32_t events = ((what & CURL_POLL_IN) != 0 ? (uint32_t)EPOLLIN : 0u) |
                      ((what & CURL_POLL_OUT) != 0 ? (uint32_t)EPOLLOUT : 0u);

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (w)
            loop_del(c->loop, &w->src);
        free(w);
        curl_multi_assign(c->multi, fd, NULL);
        return 0;
    }
    if (w) {
        loop_events(c->loop, &w->src, events);
        return 0;
    }
    w = calloc(1, sizeof *w);
    if (!w)
        return -1;
    w->owner = c;
    if (loop_add(c->loop, &w->src, fd, events, on_socket, w) < 0) {
        free(w);
        return -1;
    }
    curl_multi_assign(c->multi, fd, w);
    return 0;
}

static int set_timer(CURLM *multi, long timeout_ms, void *ctx)
{
    struct pathclient *c = ctx;

    (void)multi;
    c->timer_ns = timeout_ms < 0 ? LOOP_FOREVER : now_ns() + (uint64_t)timeout_ms * 1000000;
    return 0;
}

/* ------------------------------------------------------------------ answers */

/* Moves to the next service in the list; after the last one, to the first. */
static void next_service(struct pathclient *c)
{
    const char *list = c->set->path_service;
    const char *at = list[c->service_end] == ',' ? list + c->service_end + 1 : list;
    size_t n = strcspn(at, ",");

    snprintf(c->service, sizeof c->service, "%.*s", (int)n, at);
    c->service_end = (size_t)(at - list) + n;
}

static void take_answer(struct pathclient *c, CURLcode result, uint64_t now)
{
    struct path_answer a = {
        .body = c->body, .body_bytes = c->body_bytes, .retry_after_s = c->retry_after_s};
    long status = 0;

    if (result == CURLE_OK)
        curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    a.status = (unsigned)status;
    if (status == 0)
        a.why = c->too_long           ? "the answer is too long"
                : c->error[0] != '\0' ? c->error
                                      : curl_easy_strerror(result);
    curl_multi_remove_handle(c->multi, c->easy);
    curl_slist_free_all(c->headers);
    c->headers = NULL;
    c->busy = false;
    if (a.status == 0 || a.status == 503)
        next_service(c);
    pathservice_answer(c->core, &a, now);
}

static void collect(struct pathclient *c, uint64_t now)
{
    int left;

    const CURLMsg *m;
    while ((m = curl_multi_info_read(c->multi, &left)))
        if (m->msg == CURLMSG_DONE && m->easy_handle == c->easy)
            take_answer(c, m->data.result, now);
}

static void on_socket(void *ctx, uint32_t events)
{
    const struct watch *w = ctx;
    struct pathclient *c = w->owner;
    int running, what = ((events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                        ((events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                        ((events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);

    curl_multi_socket_action(c->multi, w->src.fd, what, &running);
    collect(c, c->loop->now_ns);
}

/* ------------------------------------------------------------------ requests */

static bool add_header(struct pathclient *c, const char *line)
{
    struct curl_slist *longer = curl_slist_append(c->headers, line);

    if (longer)
        c->headers = longer;
    return longer;
}

static bool add_headers(struct pathclient *c, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "no memory");
    if (!add_header(c, "Accept: application/json, application/problem+json") ||
        !add_header(c, "Expect:") ||
        (c->request.brief && !add_header(c, "Prefer: return=minimal")) ||
        (c->request.body[0] != '\0' && !add_header(c, "Content-Type: application/json")))
        return false;
    if (c->set->path_token_file[0] == '\0')
        return true;
    char token[PATH_TOKEN_MAX];
    if (pathclient_token(c->set->path_token_file, token, why, why_bytes) < 0)
        return false;
    char line[PATH_TOKEN_MAX + 32];
    snprintf(line, sizeof line, "Authorization: Bearer %s", token);
    return add_header(c, line);
}

static void start_request(struct pathclient *c)
{
    bool is_unix = strncmp(c->service, "unix:", 5) == 0;

    c->body_bytes = c->header_bytes = 0;
    c->retry_after_s = 0;
    c->too_long = false;
    c->error[0] = '\0';
    char url[CONF_SERVICES + sizeof c->request.target];
    snprintf(url, sizeof url, "%s%s", is_unix ? "http://localhost" : c->service, c->request.target);
    curl_easy_setopt(c->easy, CURLOPT_UNIX_SOCKET_PATH, is_unix ? c->service + 5 : NULL);
    curl_easy_setopt(c->easy, CURLOPT_URL, url);
    curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST,
                     c->request.method == PATH_DELETE ? "DELETE"
                     : c->request.method == PATH_POST ? "POST"
                                                      : "GET");
    if (c->request.method == PATH_POST) {
        curl_easy_setopt(c->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(c->request.body));
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, c->request.body);
    } else {
        curl_easy_setopt(c->easy, CURLOPT_HTTPGET, 1L);
    }
    c->busy = curl_multi_add_handle(c->multi, c->easy) == CURLM_OK;
}

uint64_t pathclient_tend(struct pathclient *c, uint64_t now)
{
    pathservice_tend(c->core, now);
    if (now >= c->timer_ns) {
        c->timer_ns = LOOP_FOREVER;
        int running;
        curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        collect(c, now);
    }
    char why[CONF_TEXT + 128];
    while (!c->busy && pathservice_request(c->core, now, &c->request)) {
        if (add_headers(c, why, sizeof why)) {
            start_request(c);
            snprintf(why, sizeof why, "curl does not accept the request");
        }
        if (c->busy)
            break;
        curl_slist_free_all(c->headers);
        c->headers = NULL;
        pathservice_answer(c->core, &(struct path_answer){.why = why}, now);
    }
    uint64_t due = pathservice_deadline(c->core);
    return c->timer_ns < due ? c->timer_ns : due;
}

/* ------------------------------------------------------------------ beginning and end */

/* curl before 7.85 (Ubuntu 22.04) lacks CURLOPT_PROTOCOLS_STR. */
static CURLcode only_http(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
}

static bool set_options(struct pathclient *c)
{
    uint64_t longest_s = c->set->path_timeout_s;
    CURL *e = c->easy;
    bool ok = only_http(e) == CURLE_OK;

    if (longest_s > PATH_REQUEST_S)
        longest_s = PATH_REQUEST_S;

    ok = curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_PROXY, "") == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)longest_s * 1000L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->error) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_WRITEDATA, c) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_HEADERDATA, c) == CURLE_OK && ok;
    if (c->set->path_ca_file[0] != '\0')
        ok = curl_easy_setopt(e, CURLOPT_CAINFO, c->set->path_ca_file) == CURLE_OK && ok;
    ok = curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, watch_socket) == CURLM_OK && ok;
    ok = curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c) == CURLM_OK && ok;
    ok = curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, set_timer) == CURLM_OK && ok;
    return curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c) == CURLM_OK && ok;
}

struct pathclient *pathclient_open(struct loop *loop, const struct conf_settings *set,
                                   struct pathservice *core)
{
    struct pathclient *c = calloc(1, sizeof *c);

    if (!c || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        log_error("cannot start libcurl");
        free(c);
        return NULL;
    }
    *c = (struct pathclient){.loop = loop,
                             .set = set,
                             .core = core,
                             .timer_ns = LOOP_FOREVER,
                             .multi = curl_multi_init(),
                             .easy = curl_easy_init(),
                             .body = malloc(PATH_BODY_MAX)};
    next_service(c);
    if (c->multi && c->easy && c->body && set_options(c))
        return c;
    log_error("cannot start libcurl: it lacks an option, or there is no memory");
    pathclient_close(c);
    return NULL;
}

void pathclient_close(struct pathclient *c)
{
    if (!c)
        return;
    if (c->busy)
        curl_multi_remove_handle(c->multi, c->easy);
    curl_slist_free_all(c->headers);
    curl_easy_cleanup(c->easy);
    curl_multi_cleanup(c->multi);
    curl_global_cleanup();
    free(c->body);
    free(c);
}
