/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the receiver only.
 */
#ifndef FCAST_RECEIVER_IMPL_H
#define FCAST_RECEIVER_IMPL_H

#include "auth.h"
#include "lct.h"
#include "reception.h"

struct fcast_object {
    uint64_t toi, heard_ns;
    struct fcast_reception reception;
    uint64_t memory;    /* bytes */
    unsigned conflicts; /* other OTI in a row */
    bool is_own;        /* its place is the core's: descriptors, in memory */
    bool is_named;      /* by the newest descriptor */
    struct fcast_object *next;
};

struct fcast_receiver {
    struct fcast_receiver_config cfg;
    struct fcast_auth *auth;
    uint32_t ntp_s; /* now */
    bool has_session, is_closed;
    bool has_payload; /* before it, the flag that closes a session says nothing */
    uint64_t source, tsi, heard_ns;
    bool has_psn;
    uint16_t psn; /* that is expected next */
    struct fcast_object *objects;
    unsigned count, own_count; /* all; of these, in memory */
    uint64_t bytes, memory;    /* of all objects at a time */
    uint64_t *done;            /* TOIs, rising */
    size_t done_count, done_room;
    struct fcast_cid *cid; /* the newest descriptor; NULL: none yet */
    uint32_t cid_id;
    bool cid_complete;
    struct fcast_fdt fdt; /* FLUTE: the newest */
    bool has_fdt;
    uint32_t fdt_instance, fdt_coming; /* of the newest; of what is being received */
    struct fcast_receiver_stats stats;
};

/* An object that the bounds and the caller let in; NULL: they do not. (receiver_objects.c) */
struct fcast_object *fcast_begin_object(struct fcast_receiver *r, uint64_t toi,
                                        const struct fcast_fti *fti, uint64_t now_ns);
/* Gives an object up; `keep`: what is stored may serve later. */
void fcast_drop_object(struct fcast_receiver *r, struct fcast_object *o, bool keep);
/* Gives it to the caller if it is complete. */
void fcast_finish_object(struct fcast_receiver *r, struct fcast_object *o);
/* A new FDT: files without bytes are complete, others may have waited for their names. */
void fcast_look_at_fdt(struct fcast_receiver *r);
/* True if this object is already here (descriptor.c). */
bool fcast_is_done(const struct fcast_receiver *r, uint64_t toi);
/* Notes that it is. false: no memory. */
bool fcast_set_done(struct fcast_receiver *r, uint64_t toi);
/* Another session begins: its objects have their own numbers, and no descriptor came yet. */
void fcast_forget_session(struct fcast_receiver *r);
/* True if the newest descriptor names it. */
bool fcast_is_named(const struct fcast_receiver *r, uint64_t toi);
/* What the FDT says of the object; NULL: nothing. */
const struct fcast_fdt_file *fcast_fdt_file_of(const struct fcast_receiver *r, uint64_t toi);
/* A place in memory for an object of that length. false: no memory. */
bool fcast_memory_place(uint64_t length, struct fcast_place *out);
void fcast_memory_place_free(struct fcast_place *place);
/* A whole descriptor came: its bytes after the header, if it has one. */
void fcast_take_cid(struct fcast_receiver *r, const struct fcast_meta *meta, const uint8_t *bytes,
                    size_t len);
void fcast_take_fdt(struct fcast_receiver *r, const uint8_t *bytes, size_t len);

#endif
