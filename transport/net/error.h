/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a call failed, as a message for people.
 */
#ifndef TRANSPORT_NET_ERROR_H
#define TRANSPORT_NET_ERROR_H

struct tp_error {
    char text[256];
};

/* Formats a message into err. Returns -1. */
int tp_fail(struct tp_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
