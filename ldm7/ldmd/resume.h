/* SPDX-License-Identifier: Apache-2.0
 *
 * What an LDM6 downstream remembers between sessions (LDM-6.15.0 savedInfo): the information of
 * the last product of a request that came from its upstream. A text file `.<md5 of the
 * request>.info` in the queue's directory.
 */
#ifndef LDMD_RESUME_H
#define LDMD_RESUME_H

#include "conf.h"

#define RESUME_LINE_MAX 1024

/* The file's name; false if it would be too long. */
bool resume_path(char *out, size_t out_bytes, const char *queue, const struct conf_request *req);
/* {arrival,feed,seqno,{length,origin},size,{length,ident},md5}; returns out. */
char *resume_format(const struct pq_info *info, char *out, size_t out_bytes);
/* false: the line has another form. */
bool resume_parse(const char *line, struct pq_info *out);
/* written: when (may be NULL). false: no file, or not in this format. */
bool resume_load(const char *path, struct pq_info *out, struct timeval *written);
/* Writes a temporary file and renames it. -1: errno. */
int resume_save(const char *path, const struct pq_info *info);

#endif
