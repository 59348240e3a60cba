/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that uses the control library: sends one file, or receives into a folder, until all is
 * done.
 *   control_example send ADDRESS PORT INTERFACE FILE [REDUNDANCY]
 *   control_example recv ADDRESS PORT INTERFACE FOLDER
 * Without REDUNDANCY it sends until it reads a line from standard input. If FILE names two files
 * separated by a comma, it sends one after the other.
 */
#include <fcast_control.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sem_t finished;
static int exit_status;

static void on_complete(void *ctx)
{
    (void)ctx;
    sem_post(&finished);
}

static void on_file_start(void *ctx, uint64_t id, uint64_t bytes)
{
    (void)ctx;
    printf("start id=%llu bytes=%llu\n", (unsigned long long)id, (unsigned long long)bytes);
}

static void on_file_complete(void *ctx, uint64_t id, const char *name, uint64_t bytes)
{
    (void)ctx;
    printf("complete id=%llu bytes=%llu name=%s\n", (unsigned long long)id,
           (unsigned long long)bytes, name);
}

static void on_error(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "error: %s\n", text);
}

static void on_fatal_error(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "fatal: %s\n", text);
    exit_status = 1;
    sem_post(&finished);
}

static int fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    return 1;
}

static int send_file(char **argv, const char *redundancy)
{
    char why[FCAST_CONTROL_WHY];
    const struct fcast_tx_options options = {.interface_address = argv[4],
                                             .on_complete = on_complete};
    struct fcast_tx *tx =
        fcast_tx_init(argv[2], (uint16_t)atoi(argv[3]), 1, 5000000, &options, why);
    struct fcast_tx_stats st;

    if (!tx)
        return fail(why);
    for (char *file = strtok(argv[5], ","); file; file = strtok(NULL, ",")) {
        if (fcast_tx_start(tx, file, redundancy ? atof(redundancy) : 0, why) < 0) {
            fcast_tx_free(tx);
            return fail(why);
        }
        if (redundancy)
            sem_wait(&finished);
        else
            while (getchar() != '\n')
                continue;
        fcast_tx_stop(tx);
        fcast_tx_get_stats(tx, &st);
        printf("sent=%llu rounds=%llu complete=%d errors=%llu\n", (unsigned long long)st.sent,
               (unsigned long long)st.rounds, st.is_complete, (unsigned long long)st.errors);
    }
    fcast_tx_free(tx);
    return 0;
}

static int receive(char **argv)
{
    char why[FCAST_CONTROL_WHY];
    const struct fcast_rx_options options = {.interface_address = argv[4],
                                             .on_file_start = on_file_start,
                                             .on_file_complete = on_file_complete,
                                             .on_complete = on_complete,
                                             .on_error = on_error,
                                             .on_fatal_error = on_fatal_error};
    struct fcast_rx *rx = fcast_rx_init(argv[2], (uint16_t)atoi(argv[3]), argv[5], &options, why);
    struct fcast_rx_stats st;

    if (!rx)
        return fail(why);
    if (fcast_rx_start(rx, why) < 0) {
        fcast_rx_free(rx);
        return fail(why);
    }
    puts("ready");
    fflush(stdout);
    sem_wait(&finished);
    fcast_rx_stop(rx);
    fcast_rx_get_stats(rx, &st);
    printf("received=%llu lost=%llu stray=%llu started=%llu received_files=%llu done=%llu "
           "payload=%llu\n",
           (unsigned long long)st.received, (unsigned long long)st.lost,
           (unsigned long long)st.stray, (unsigned long long)st.files_started,
           (unsigned long long)st.files_received, (unsigned long long)st.files_done,
           (unsigned long long)st.payload_bytes);
    fcast_rx_free(rx);
    return exit_status;
}

int main(int argc, char **argv)
{
    sem_init(&finished, 0, 0);
    if (argc >= 6 && strcmp(argv[1], "send") == 0)
        return send_file(argv, argc > 6 ? argv[6] : NULL);
    if (argc == 6 && strcmp(argv[1], "recv") == 0)
        return receive(argv);
    return fail("usage: send|recv ADDRESS PORT INTERFACE FILE|FOLDER [REDUNDANCY]");
}
