/* SPDX-License-Identifier: Apache-2.0
 *
 * The key exchange that opens every TCP connection in LAYOUT_2021, sans I/O. The receiver sends
 * {u32 length, PKCS#1 PEM of an ephemeral RSA-2048 public key}; the sender answers {u32 length,
 * RSA-OAEP (SHA-1) ciphertext of the MAC key}. At MAC level 0 the plaintext is empty: the exchange
 * protects nothing, but the originals do not talk without it.
 *
 * Extension 1 is negotiated inside: the receiver's string continues, after the PEM, with the line
 * "FMTP-Extensions: 1" (PEM readers end at the END line). A sender that speaks it answers such a
 * receiver with the plaintext {"DPX1", u16 block_bytes, u16 fec_k, u32 next_index, u64 session id,
 * MAC key}; every other peer gets, and gives, what the originals do.
 *
 * Programs of Downpour say more: another line, "FMTP-Session: 2", which is answered by {"DPX2",
 * u16 block_bytes, u16 fec_k, u32 next_index, u64 session id, u8 kind of MAC, u8 1 if extension 1
 * is agreed, MAC key}.
 *
 * With a key that both ends were given (fmtp_keyx_key), the line "FMTP-Auth: 1" follows, and the
 * sender and the receiver prove to each other that they have it, before and with the answer:
 *   S -> R  u32 68, "DPC1", 32 random bytes, tag("challenge", these)
 *   R -> S  u32 32, tag("receiver", the random bytes)
 *   S -> R  u32 n + 32, the ciphertext, tag("answer", the random bytes, the ciphertext)
 * tag(word, bytes) is HMAC-SHA256 with that key of {word, SHA-256 of the receiver's string, bytes}.
 * So nobody in between can insert their own key, and a recording is useless.
 */
#ifndef FMTP_KEYX_H
#define FMTP_KEYX_H

#include "fmtp.h"

#define FMTP_KEYX_MAX 8192u /* longest string accepted (an RSA-2048 key has 426 bytes) */

enum fmtp_keyx_status { FMTP_KEYX_MORE, FMTP_KEYX_DONE, FMTP_KEYX_BAD };

struct fmtp_keyx;

/* The receiver's side; makes a key pair (about 0.1 s of CPU). offer: extension 1. NULL on
 * failure. */
struct fmtp_keyx *fmtp_keyx_new_receiver(bool offer);
/* The sender's side. */
struct fmtp_keyx *fmtp_keyx_new_sender(void);
/* Before anything else: speaks as programs of Downpour do, and with a key (NULL: none) as those
 * that were given it; then no others are accepted. */
void fmtp_keyx_speak(struct fmtp_keyx *k, const uint8_t key[FMTP_KEY_BYTES]);
/* Frees it with its keys. k may be NULL. */
void fmtp_keyx_free(struct fmtp_keyx *k);
/* Forgets what was put in (a new connection), but keeps the key pair. */
void fmtp_keyx_rewind(struct fmtp_keyx *k);

/* Takes bytes from the stream; *used says how many belonged to the exchange. After DONE or BAD
 * nothing more may be put in. */
enum fmtp_keyx_status fmtp_keyx_input(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                      size_t *used);
/* After BAD: what is wrong with the other end, in a few words. */
const char *fmtp_keyx_why(const struct fmtp_keyx *k);
/* True if that is the key that both ends should have. */
enum fmtp_keyx_distrust { FMTP_KEYX_TRUSTED, FMTP_KEYX_NO_KEY, FMTP_KEYX_OTHER_KEY };
enum fmtp_keyx_distrust fmtp_keyx_distrust(const struct fmtp_keyx *k);
/* Sender, after MORE: true if it waits for the proof that the receiver has the key. */
bool fmtp_keyx_is_challenged(const struct fmtp_keyx *k);
/* All that has to go out so far, from the beginning: the receiver has something at once, the sender
 * after fmtp_keyx_answer(), with a key after the receiver's string and after DONE. */
const uint8_t *fmtp_keyx_output(const struct fmtp_keyx *k, size_t *len);

/* --- sender, after DONE */
/* True if the receiver offers extension 1. */
bool fmtp_keyx_offered(const struct fmtp_keyx *k);
/* True if it speaks as we do (fmtp_keyx_speak). */
bool fmtp_keyx_is_ours(const struct fmtp_keyx *k);
/* Makes the answer. A peer that speaks as we do needs session. session: NULL or not extended for an
 * ordinary receiver. -1: the receiver's key cannot carry it. */
int fmtp_keyx_answer(struct fmtp_keyx *k, const struct fmtp_session *session,
                     const uint8_t *mac_key, size_t mac_key_len);

/* --- receiver, after DONE */
/* True and *session filled if the sender agreed to extension 1. */
bool fmtp_keyx_session(const struct fmtp_keyx *k, struct fmtp_session *session);
/* The same for any sender. */
void fmtp_keyx_agreed(const struct fmtp_keyx *k, struct fmtp_session *session);
/* The MAC key that the sender answered with (*len bytes, valid as long as k); *len 0 at level 0. */
const uint8_t *fmtp_keyx_mac_key(const struct fmtp_keyx *k, size_t *len);

#endif
