/* SPDX-License-Identifier: Apache-2.0
 *
 * The key exchange that opens every TCP connection in LAYOUT_2021, sans I/O. The receiver sends
 * {u32 length, PKCS#1 PEM of an ephemeral RSA-2048 public key}; the sender answers {u32 length,
 * RSA-OAEP (SHA-1) ciphertext of the MAC key}. At MAC level 0 the plaintext is empty: the exchange
 * protects nothing, but the originals do not communicate without it.
 *
 * Extension 1 is negotiated within it: after the PEM, the receiver's string continues with the line
 * "FMTP-Extensions: 1" (PEM readers stop at the END line). A sender that supports it answers such a
 * receiver with the plaintext {"DPX1", u16 block_bytes, u16 fec_k, u32 next_index, u64 session id,
 * MAC key}; with every other peer it exchanges what the originals do.
 *
 * Programs of Downpour say more: another line, "FMTP-Session: 2", which is answered by {"DPX2", u16
 * block_bytes, u16 fec_k, u32 next_index, u64 session id, u8 kind of MAC, u8 1 if extension 1 is
 * agreed on, MAC key}.
 * The line "FMTP-Progress: 1" says that the receiver can report what it has read (PROGRESS); bit 1
 * of the byte before the MAC key says that the sender wants that.
 *
 * If both ends were given a key (fmtp_keyx_speak), the line "FMTP-Auth: 1" follows, and sender and
 * receiver prove to each other that they have the key, before and with the answer:
 *   S -> R  u32 68, "DPC1", 32 random bytes, tag("challenge", these)
 *   R -> S  u32 32, tag("receiver", the random bytes)
 *   S -> R  u32 n + 32, the ciphertext, tag("answer", the random bytes, the ciphertext)
 * tag(word, bytes) is HMAC-SHA256 with that key of {word, SHA-256 of the receiver's string, bytes}.
 * An attacker on the path therefore cannot substitute their own key, and a recording is useless.
 */
#ifndef FMTP_KEYX_H
#define FMTP_KEYX_H

#include "fmtp.h"

#define FMTP_KEYX_MAX 8192u /* longest string accepted (an RSA-2048 key has 426 bytes) */

enum fmtp_keyx_status { FMTP_KEYX_MORE, FMTP_KEYX_DONE, FMTP_KEYX_BAD };

struct fmtp_keyx;

/* Makes the receiver's side with a key pair (about 0.1 s of CPU). offer: extension 1. Returns NULL
 * on failure. */
struct fmtp_keyx *fmtp_keyx_new_receiver(bool offer);
/* Makes the sender's side. */
struct fmtp_keyx *fmtp_keyx_new_sender(void);
/* Call this first: makes it speak like programs of Downpour and, with a key (NULL: none), like
 * those that have it; then it accepts no others. */
void fmtp_keyx_speak(struct fmtp_keyx *k, const uint8_t key[FMTP_KEY_BYTES]);
/* Frees it and its keys. k may be NULL. */
void fmtp_keyx_free(struct fmtp_keyx *k);
/* Discards the input (for a new connection) but keeps the key pair. */
void fmtp_keyx_rewind(struct fmtp_keyx *k);

/* Takes bytes from the stream; *used says how many belonged to the exchange. Accepts no more input
 * after DONE or BAD. */
enum fmtp_keyx_status fmtp_keyx_input(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                      size_t *used);
/* After BAD: says what is wrong with the other end, in a few words. */
const char *fmtp_keyx_why(const struct fmtp_keyx *k);
/* After BAD: whether the cause is the key that both ends should have. */
enum fmtp_keyx_distrust { FMTP_KEYX_TRUSTED, FMTP_KEYX_NO_KEY, FMTP_KEYX_OTHER_KEY };
enum fmtp_keyx_distrust fmtp_keyx_distrust(const struct fmtp_keyx *k);
/* Sender, after MORE: returns whether it waits for the receiver's proof that it has the key. */
bool fmtp_keyx_is_challenged(const struct fmtp_keyx *k);
/* Returns all output so far, from the beginning. The receiver has output at once; the sender after
 * fmtp_keyx_answer() and, with a key, after the receiver's string and after DONE. */
const uint8_t *fmtp_keyx_output(const struct fmtp_keyx *k, size_t *len);

/* --- sender, after DONE */
/* Returns whether the receiver offers extension 1. */
bool fmtp_keyx_offered(const struct fmtp_keyx *k);
/* Returns whether it speaks like we do (fmtp_keyx_speak). */
bool fmtp_keyx_is_ours(const struct fmtp_keyx *k);
/* Returns whether it can report its progress. */
bool fmtp_keyx_reports(const struct fmtp_keyx *k);
/* Makes the answer. A peer that speaks like we do needs session. session: NULL or not extended for
 * an ordinary receiver. Returns -1 if the receiver's key cannot carry it. */
int fmtp_keyx_answer(struct fmtp_keyx *k, const struct fmtp_session *session,
                     const uint8_t *mac_key, size_t mac_key_len);

/* --- receiver, after DONE */
/* Returns whether the sender agreed to extension 1, and if so fills in *session. */
bool fmtp_keyx_session(const struct fmtp_keyx *k, struct fmtp_session *session);
/* Does the same for any sender. */
void fmtp_keyx_agreed(const struct fmtp_keyx *k, struct fmtp_session *session);
/* Returns the MAC key in the sender's answer (*len bytes, valid as long as k); *len is 0 at level
 * 0. */
const uint8_t *fmtp_keyx_mac_key(const struct fmtp_keyx *k, size_t *len);

#endif
