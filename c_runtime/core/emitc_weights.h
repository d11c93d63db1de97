/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc: weights that a model gets when it starts, as a file of their own.
 *
 * Part of a package that was compiled with --weights external. The file is a header of sixteen words, the payload, and
 * an optional signature with its CRC. All numbers are little-endian:
 *   0 magic, 1 format, 2 byte order, 3 bytes of the file, 4 bytes of the payload, 5-8 digest of the code that reads it,
 *   9 version of the weights, 10 CRC of the payload, 11 bytes of the signature, 12-14 zero, 15 CRC of the words before
 * No number of the file is used as an offset. The sizes that it states must be those that the code expects.
 */
#ifndef EMITC_WEIGHTS_H
#define EMITC_WEIGHTS_H

#include "emitc_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why a file of weights is refused: further values of emitc_status, which only functions of such a model return. In C++
 * the type has the values 0 to 15, since 9 is the highest that it names. */
#define EMITC_WEIGHTS_FORMAT ((emitc_status)10)    /* no file of weights, or of another version of the format */
#define EMITC_WEIGHTS_TRUNCATED ((emitc_status)11) /* fewer bytes than the file states */
#define EMITC_WEIGHTS_DAMAGED ((emitc_status)12)   /* a CRC is wrong, or a number leads outside of its layer */
#define EMITC_WEIGHTS_FOREIGN ((emitc_status)13)   /* the weights are for other code */
#define EMITC_WEIGHTS_OLDER ((emitc_status)14)     /* of a lower version than the code takes, or than those in use */
#define EMITC_WEIGHTS_UNSIGNED ((emitc_status)15)  /* there is no signature, or the application refuses it */

#define EMITC_WEIGHTS_HEADER_BYTES 64u
#define EMITC_WEIGHTS_ALIGN 16u
#define EMITC_WEIGHTS_MAGIC 0x54574D45u
#define EMITC_WEIGHTS_FORMAT_VERSION 1u
#define EMITC_WEIGHTS_BYTE_ORDER 0x01020304u

/* Whether a signature is right, by the application. data: the header and the payload, as they were signed. Returns
 * EMITC_OK where it is. */
typedef emitc_status (*emitc_weights_verifier)(
    void *context, const void *data, size_t data_bytes, const void *signature, size_t signature_bytes);

/* Brings a layer's weights into faster memory. from: where they lie in the file; to: at least `bytes` bytes. Returns
 * EMITC_OK, or what the run is to end with. */
typedef emitc_status (*emitc_weights_loader)(void *context, void *to, const void *from, size_t bytes);

/* What the code expects. structure: digest of all of it; oldest: the lowest version that it takes. */
struct emitc_weights_expected {
    uint32_t structure[4];
    uint32_t payload_bytes;
    uint32_t oldest;
};

/* A status as a constant English text: those of weights, and all that emitc_status_string() knows. */
static inline const char *emitc_weights_status_string(emitc_status status)
{
    switch ((int)status) {
    case 10:
        return "no file of weights in the format that the code reads";
    case 11:
        return "the file of weights is cut off";
    case 12:
        return "the file of weights is damaged";
    case 13:
        return "the weights are for other code";
    case 14:
        return "the weights are of an older version";
    case 15:
        return "the weights have no signature that the application accepts";
    default:
        return emitc_status_string(status);
    }
}

/* A word of the header. */
static inline uint32_t emitc_weights_word(const void *weights, uint32_t number)
{
    uint32_t word;
    memcpy(&word, (const unsigned char *)weights + 4u * number, 4);
    return word;
}

/* The version of a file that was accepted. */
static inline uint32_t emitc_weights_version(const void *weights)
{
    return emitc_weights_word(weights, 9);
}

/* What follows the header of a file that was accepted. */
static inline const void *emitc_weights_payload(const void *weights)
{
    return (const unsigned char *)weights + EMITC_WEIGHTS_HEADER_BYTES;
}

/* memset for a few bytes: a compiler calls a function for a value that it does not know. */
static inline void emitc_weights_fill(void *to, int32_t value, size_t bytes)
{
    unsigned char *at = (unsigned char *)to;
    const unsigned char byte = (unsigned char)value;
    const uint32_t two = byte | (uint32_t)byte << 8;
    const uint32_t four = two | two << 16;
#if defined(__ARM_FEATURE_UNALIGNED)
    for (; bytes >= 4u; bytes -= 4u) {
        memcpy(at, &four, 4);
        at += 4;
    }
#else
    if (((uintptr_t)to & 3u) == 0u) {
        uint32_t *word = (uint32_t *)to;
        for (; bytes >= 4u; bytes -= 4u) {
            *word++ = four;
        }
        at = (unsigned char *)word;
    }
#endif
    for (; bytes > 0u; bytes--) {
        *at++ = byte;
    }
}

/* A layer's weights into faster memory, by the application where it has given a function. */
static inline emitc_status emitc_weights_load(
    emitc_weights_loader load, void *context, void *to, const void *from, size_t bytes)
{
    if (load != NULL) {
        return load(context, to, from, bytes);
    }
    memcpy(to, from, bytes);
    return EMITC_OK;
}

/* CRC-32 of IEEE 802.3, four bits at a time. */
static inline uint32_t emitc_weights_crc(const unsigned char *data, size_t bytes)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
        0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
    };
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
    }
    return ~crc;
}

/* Bytes of the file that a header states, 0 where its own sizes do not fit together. */
static inline uint32_t emitc_weights_file_bytes(const void *weights, uint32_t payload_bytes)
{
    const uint32_t signature = emitc_weights_word(weights, 11);
    if (signature > 0x10000u) {
        return 0;
    }
    const uint32_t stated = emitc_weights_word(weights, 3);
    const uint32_t wanted = EMITC_WEIGHTS_HEADER_BYTES + payload_bytes + (signature != 0u ? signature + 4u : 0u);
    return stated == wanted ? wanted : 0u;
}

/* Checks everything but a signature's meaning. Each byte is read at most twice, in order. */
static inline emitc_status emitc_weights_check(
    const void *weights, size_t weights_bytes, const struct emitc_weights_expected *expected)
{
    const unsigned char *const data = (const unsigned char *)weights;
    if (data == NULL) {
        return EMITC_INVALID_ARGUMENT;
    }
    if ((uintptr_t)data % EMITC_WEIGHTS_ALIGN != 0u) {
        return EMITC_MISALIGNED;
    }
    if (weights_bytes < EMITC_WEIGHTS_HEADER_BYTES) {
        return EMITC_WEIGHTS_TRUNCATED;
    }
    if (emitc_weights_word(data, 0) != EMITC_WEIGHTS_MAGIC ||
        emitc_weights_word(data, 1) != EMITC_WEIGHTS_FORMAT_VERSION ||
        emitc_weights_word(data, 2) != EMITC_WEIGHTS_BYTE_ORDER) {
        return EMITC_WEIGHTS_FORMAT;
    }
    if (emitc_weights_crc(data, EMITC_WEIGHTS_HEADER_BYTES - 4u) != emitc_weights_word(data, 15)) {
        return EMITC_WEIGHTS_DAMAGED;
    }
    for (uint32_t i = 0; i < 4u; i++) {
        if (emitc_weights_word(data, 5u + i) != expected->structure[i]) {
            return EMITC_WEIGHTS_FOREIGN;
        }
    }
    const uint32_t payload = expected->payload_bytes;
    const uint32_t file_bytes = emitc_weights_file_bytes(data, payload);
    if (emitc_weights_word(data, 4) != payload || file_bytes == 0u || emitc_weights_word(data, 12) != 0u ||
        emitc_weights_word(data, 13) != 0u || emitc_weights_word(data, 14) != 0u) {
        return EMITC_WEIGHTS_FORMAT;
    }
    if (weights_bytes < file_bytes) {
        return EMITC_WEIGHTS_TRUNCATED;
    }
    if (emitc_weights_version(data) < expected->oldest) {
        return EMITC_WEIGHTS_OLDER;
    }
    if (emitc_weights_crc(data + EMITC_WEIGHTS_HEADER_BYTES, payload) != emitc_weights_word(data, 10)) {
        return EMITC_WEIGHTS_DAMAGED;
    }
    const uint32_t signature = emitc_weights_word(data, 11);
    const unsigned char *const after = data + EMITC_WEIGHTS_HEADER_BYTES + payload;
    if (signature != 0u) {
        uint32_t crc;
        memcpy(&crc, after + signature, 4);
        if (emitc_weights_crc(after, signature) != crc) {
            return EMITC_WEIGHTS_DAMAGED;
        }
    }
    return EMITC_OK;
}

/* The same, and the application's verify() must accept the signature. */
static inline emitc_status emitc_weights_check_signed(
    const void *weights, size_t weights_bytes, const struct emitc_weights_expected *expected,
    emitc_weights_verifier verify, void *context)
{
    if (verify == NULL) {
        return EMITC_INVALID_ARGUMENT;
    }
    const emitc_status checked = emitc_weights_check(weights, weights_bytes, expected);
    if (checked != EMITC_OK) {
        return checked;
    }
    const size_t covered = EMITC_WEIGHTS_HEADER_BYTES + expected->payload_bytes;
    const uint32_t signature = emitc_weights_word(weights, 11);
    if (signature == 0u ||
        verify(context, weights, covered, (const unsigned char *)weights + covered, signature) != EMITC_OK) {
        return EMITC_WEIGHTS_UNSIGNED;
    }
    return EMITC_OK;
}

#ifdef __cplusplus
}
#endif

#endif /* EMITC_WEIGHTS_H */
