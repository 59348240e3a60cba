/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the receiver.
 */
#ifndef FCAST_RECEIVER_IMPL_H
#define FCAST_RECEIVER_IMPL_H

#include "auth.h"
#include "lct.h"
#include "reception.h"

struct fcast_object {
    uint64_t toi, heard_ns;
    struct fcast_reception reception;
    uint64_t memory;    /* in bytes */
    unsigned conflicts; /* consecutive packets with another OTI */
    bool is_own;        /* the receiver itself provides its place: descriptors, in memory */
    bool is_named;      /* the newest descriptor names it */
    struct fcast_object *next;
};

struct fcast_receiver {
    struct fcast_receiver_config cfg;
    struct fcast_auth *auth;
    uint32_t ntp_s; /* now */
    bool has_session, is_closed;
    bool has_payload; /* before it, the flag that closes a session means nothing */
    uint64_t source, tsi, heard_ns;
    bool has_psn;
    uint16_t psn; /* expected next */
    struct fcast_object *objects;
    unsigned count, own_count; /* all; those in memory */
    uint64_t bytes, memory;    /* of all objects together */
    uint64_t *done;            /* TOIs, ascending */
    size_t done_count, done_room;
    struct fcast_cid *cid; /* the newest descriptor; NULL: none yet */
    uint32_t cid_id;
    bool cid_complete;
    struct fcast_fdt fdt; /* FLUTE: the newest */
    bool has_fdt;
    uint32_t fdt_instance, fdt_coming; /* of the newest; of the one being received */
    struct fcast_receiver_stats stats;
};

/* Begins an object, if the bounds and the caller permit it; otherwise returns NULL.
 * (receiver_objects.c) */
struct fcast_object *fcast_begin_object(struct fcast_receiver *r, uint64_t toi,
                                        const struct fcast_fti *fti, uint64_t now_ns);
/* Drops an object; `keep`: what is stored may be used later. */
void fcast_drop_object(struct fcast_receiver *r, struct fcast_object *o, bool keep);
/* Passes the object to the caller if it is complete. */
void fcast_finish_object(struct fcast_receiver *r, struct fcast_object *o);
/* Applies a new FDT: empty files are complete, and others may have waited for their names. */
void fcast_look_at_fdt(struct fcast_receiver *r);
/* Returns whether this object is already complete (descriptor.c). */
bool fcast_is_done(const struct fcast_receiver *r, uint64_t toi);
/* Records that it is. Returns false if out of memory. */
bool fcast_set_done(struct fcast_receiver *r, uint64_t toi);
/* Prepares for another session: its objects have their own numbers, and no descriptor has
 * arrived. */
void fcast_forget_session(struct fcast_receiver *r);
/* Returns whether the newest descriptor names it. */
bool fcast_is_named(const struct fcast_receiver *r, uint64_t toi);
/* Returns what the FDT says about the object; NULL: nothing. */
const struct fcast_fdt_file *fcast_fdt_file_of(const struct fcast_receiver *r, uint64_t toi);
/* Makes a place in memory for an object of that length. Returns false if out of memory. */
bool fcast_memory_place(uint64_t length, struct fcast_place *out);
void fcast_memory_place_free(struct fcast_place *place);
/* Processes a complete descriptor: the bytes after its header, if it has one. */
void fcast_take_cid(struct fcast_receiver *r, const struct fcast_meta *meta, const uint8_t *bytes,
                    size_t len);
void fcast_take_fdt(struct fcast_receiver *r, const uint8_t *bytes, size_t len);

#endif
