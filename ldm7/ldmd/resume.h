/* SPDX-License-Identifier: Apache-2.0
 *
 * What an LDM6 downstream remembers between sessions (LDM-6.15.0 savedInfo): the information of the
 * last product of a request that arrived from its upstream. A text file `.<md5 of the
 * request>.info` in the queue's directory.
 */
#ifndef LDMD_RESUME_H
#define LDMD_RESUME_H

#include "conf.h"

#define RESUME_LINE_MAX 1024

/* Makes the file's name; returns false if it would be too long. */
bool resume_path(char *out, size_t out_bytes, const char *queue, const struct conf_request *req);
/* Formats {arrival,feed,seqno,{length,origin},size,{length,ident},md5}; returns out. */
char *resume_format(const struct pq_info *info, char *out, size_t out_bytes);
/* Returns false if the line has another format. */
bool resume_parse(const char *line, struct pq_info *out);
/* written: when (may be NULL). Returns false if there is no file, or it has another format. */
bool resume_load(const char *path, struct pq_info *out, struct timeval *written);
/* Writes a temporary file and renames it. Returns -1 with errno on failure. */
int resume_save(const char *path, const struct pq_info *info);

#endif
