/* SPDX-License-Identifier: Apache-2.0
 *
 * The LDPC code of a scheme (RFC 5170).
 */
#ifndef FCAST_LDPC_KIND_H
#define FCAST_LDPC_KIND_H

#include "fec/ldpc.h"
#include "fti.h"

static inline enum ldpc_kind fcast_ldpc_kind(const struct fcast_fti *fti)
{
    return fti->fec == FCAST_TRIANGLE ? LDPC_TRIANGLE : LDPC_STAIRCASE;
}

#endif
