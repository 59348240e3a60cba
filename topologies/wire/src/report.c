/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static FILE *begin(const char *path, char *temporary, size_t size)
{
    snprintf(temporary, size, "%s.tmp", path);
    return fopen(temporary, "we");
}

static int finish(FILE *file, const char *path, const char *temporary)
{
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad)
        return -1;
    return rename(temporary, path);
}

int report_ready(const struct config *config, const struct line *lines, bool fifo_granted)
{
    if (config->ready[0] == '\0')
        return 0;
    char temporary[CONFIG_PATH + 8];
    FILE *f = begin(config->ready, temporary, sizeof temporary);
    if (!f)
        return -1;
    fprintf(f, "{\"pid\": %ld, \"sched_fifo\": %s, \"gap_us\": %" PRId64 ", \"lines\": [",
            (long)getpid(), fifo_granted ? "true" : "false", config->gap_us);
    for (size_t i = 0; i < config->n_lines; i++) {
        const struct config_line *c = &config->lines[i];
        fprintf(f,
                "%s\n  {\"link\": \"%s\", \"direction\": \"%s\", \"in\": \"%s\", \"out\": \"%s\", "
                "\"delay_us\": %" PRId64 ", \"jitter_us\": %" PRId64
                ", \"loss\": %.17g, \"seed\": %" PRIu64 ", \"slots\": %u}",
                i == 0 ? "" : ",", c->link, c->direction, c->in, c->out, lines[i].delay_ns / 1000,
                lines[i].jitter_ns / 1000, lines[i].loss, c->seed, c->slots);
    }
    fprintf(f, "\n]}\n");
    return finish(f, config->ready, temporary);
}

int report_stats(const struct config *config, const struct line *lines, unsigned sequence,
                 double time_s)
{
    if (config->stats[0] == '\0')
        return 0;
    char temporary[CONFIG_PATH + 8];
    FILE *f = begin(config->stats, temporary, sizeof temporary);
    if (!f)
        return -1;
    fprintf(f, "{\"sequence\": %u, \"time\": %.6f, \"lines\": {", sequence, time_s);
    for (size_t i = 0; i < config->n_lines; i++) {
        const struct config_line *c = &config->lines[i];
        const struct line_stats *s = &lines[i].stats;
        fprintf(f,
                "%s\n  \"%s/%s\": {\"frames\": %" PRIu64 ", \"bytes\": %" PRIu64
                ", \"dropped\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"queue_dropped\": %" PRIu64
                ", \"ring_dropped\": %" PRIu64 ", \"send_failed\": %" PRIu64
                ", \"truncated\": %" PRIu64 ", \"partial_checksum\": %" PRIu64
                ", \"late_p50_us\": %.1f, \"late_p99_us\": %.1f, \"late_max_us\": %.1f}",
                i == 0 ? "" : ",", c->link, c->direction, s->frames, s->bytes,
                s->ring_dropped + s->send_failed + s->truncated, s->lost, s->queue_dropped,
                s->ring_dropped, s->send_failed, s->truncated, s->partial_checksum,
                line_lateness_us(&lines[i], 0.50), line_lateness_us(&lines[i], 0.99),
                (double)s->late_max_ns / 1000.0);
    }
    fprintf(f, "\n}}\n");
    return finish(f, config->stats, temporary);
}
