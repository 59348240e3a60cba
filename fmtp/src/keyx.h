/* SPDX-License-Identifier: Apache-2.0
 *
 * The key exchange that opens every TCP connection in LAYOUT_2021, sans I/O. The receiver sends
 * {u32 length, PKCS#1 PEM of an ephemeral RSA-2048 public key}; the sender answers {u32 length,
 * RSA-OAEP (SHA-1) ciphertext of the MAC key}. At MAC level 0 the plaintext is empty: the exchange
 * protects nothing, but the originals do not talk without it.
 */
#ifndef FMTP_KEYX_H
#define FMTP_KEYX_H

#include <stddef.h>
#include <stdint.h>

#define FMTP_KEYX_MAX 8192u           /* longest string accepted (an RSA-2048 key has 426 bytes) */

enum fmtp_keyx_status { FMTP_KEYX_MORE, FMTP_KEYX_DONE, FMTP_KEYX_BAD };

struct fmtp_keyx;

/* The receiver's side; makes a key pair (some 0.1 s of CPU). NULL on failure. */
struct fmtp_keyx *fmtp_keyx_new_receiver(void);
/* The sender's side. */
struct fmtp_keyx *fmtp_keyx_new_sender(void);
void fmtp_keyx_free(struct fmtp_keyx *k);
/* Forgets what was put in, but keeps the key pair. */
void fmtp_keyx_rewind(struct fmtp_keyx *k);

/* Takes bytes from the stream; *used says how many belonged to the exchange. After DONE or BAD
 * nothing more may be put in. */
enum fmtp_keyx_status fmtp_keyx_input(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                      size_t *used);
/* What goes out: the receiver has it at once, the sender after DONE. */
const uint8_t *fmtp_keyx_output(const struct fmtp_keyx *k, size_t *len);

#endif
