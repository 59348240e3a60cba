/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of libnorm that are used here (NRL's NORM, RFC 5740). Its own header declares two
 * functions with C++ references, so C programs cannot include it; all symbols have C linkage.
 */
#ifndef BENCH_NORM_API_H
#define BENCH_NORM_API_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef const void *NormInstanceHandle, *NormSessionHandle, *NormNodeHandle, *NormObjectHandle;

typedef enum {
    NORM_EVENT_INVALID = 0,
    NORM_TX_QUEUE_VACANCY,
    NORM_TX_QUEUE_EMPTY,
    NORM_TX_FLUSH_COMPLETED,
    NORM_TX_WATERMARK_COMPLETED,
    NORM_TX_CMD_SENT,
    NORM_TX_OBJECT_SENT,
    NORM_TX_OBJECT_PURGED,
    NORM_TX_RATE_CHANGED,
    NORM_LOCAL_SENDER_CLOSED,
    NORM_REMOTE_SENDER_NEW,
    NORM_REMOTE_SENDER_RESET,
    NORM_REMOTE_SENDER_ADDRESS,
    NORM_REMOTE_SENDER_ACTIVE,
    NORM_REMOTE_SENDER_INACTIVE,
    NORM_REMOTE_SENDER_PURGED,
    NORM_RX_CMD_NEW,
    NORM_RX_OBJECT_NEW,
    NORM_RX_OBJECT_INFO,
    NORM_RX_OBJECT_UPDATED,
    NORM_RX_OBJECT_COMPLETED,
    NORM_RX_OBJECT_ABORTED
} NormEventType;

typedef struct {
    NormEventType type;
    NormSessionHandle session;
    NormNodeHandle sender;
    NormObjectHandle object;
} NormEvent;

enum { NORM_PROBE_NONE, NORM_PROBE_PASSIVE, NORM_PROBE_ACTIVE };
enum { NORM_SYNC_CURRENT, NORM_SYNC_STREAM, NORM_SYNC_ALL };
enum { NORM_ACK_INVALID, NORM_ACK_FAILURE, NORM_ACK_PENDING, NORM_ACK_SUCCESS };

NormInstanceHandle NormCreateInstance(bool priority_boost);
void NormDestroyInstance(NormInstanceHandle);
bool NormSetCacheDirectory(NormInstanceHandle, const char *path);
bool NormGetNextEvent(NormInstanceHandle, NormEvent *, bool wait);
int NormGetDescriptor(NormInstanceHandle);
NormSessionHandle NormCreateSession(NormInstanceHandle, const char *address, uint16_t port,
                                    uint32_t node);
void NormDestroySession(NormSessionHandle);
bool NormSetMulticastInterface(NormSessionHandle, const char *name);
bool NormStartSender(NormSessionHandle, uint16_t id, uint32_t buffer, uint16_t segment,
                     uint16_t data, uint16_t parity, uint8_t fec_id);
void NormStopSender(NormSessionHandle);
void NormSetTxRate(NormSessionHandle, double bits_per_second);
bool NormSetTxSocketBuffer(NormSessionHandle, unsigned size);
void NormSetCongestionControl(NormSessionHandle, bool enable, bool adjust_rate);
void NormSetTxCacheBounds(NormSessionHandle, off_t size_max, uint32_t count_min,
                          uint32_t count_max);
void NormSetAutoParity(NormSessionHandle, unsigned char parity);
void NormSetGrttEstimate(NormSessionHandle, double seconds);
void NormSetBackoffFactor(NormSessionHandle, double factor);
void NormSetGroupSize(NormSessionHandle, unsigned size);
NormObjectHandle NormFileEnqueue(NormSessionHandle, const char *path, const char *info,
                                 unsigned info_len);
bool NormSetWatermark(NormSessionHandle, NormObjectHandle, bool override_flush);
bool NormAddAckingNode(NormSessionHandle, uint32_t node);
int NormGetAckingStatus(NormSessionHandle, uint32_t node);
bool NormResetWatermark(NormSessionHandle);
bool NormStartReceiver(NormSessionHandle, uint32_t buffer);
void NormStopReceiver(NormSessionHandle);
void NormSetRxCacheLimit(NormSessionHandle, unsigned short count);
bool NormSetRxSocketBuffer(NormSessionHandle, unsigned size);
void NormSetDefaultUnicastNack(NormSessionHandle, bool enable);
void NormSetDefaultSyncPolicy(NormSessionHandle, int policy);
bool NormObjectHasInfo(NormObjectHandle);
uint16_t NormObjectGetInfo(NormObjectHandle, char *buffer, uint16_t room);
bool NormFileGetName(NormObjectHandle, char *name, unsigned room);

#endif
