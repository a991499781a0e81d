/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The error channel: a status for the program, a sentence for the person. */
#include "core/internal.h"

#include <stdio.h>
#include <string.h>

#define MESSAGE_BYTES 512

/* Thread local, so that no call can disturb another thread's sentence and none needs a lock. */
static _Thread_local char last_error[MESSAGE_BYTES];
static _Thread_local int last_errno;
static _Thread_local bool may_fail;

const char *dci_last_error(void)
{
        return last_error;
}

int32_t dci_last_errno(void)
{
        return last_errno;
}

dci_status dci_fail(dci_status status, const char *format, ...)
{
        if (may_fail)
                return status;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(last_error, sizeof last_error, format, arguments);
        va_end(arguments);
        last_errno = 0;
        return status;
}

dci_status dci_fail_errno(dci_status status, int error)
{
        if (!may_fail)
                last_errno = error;
        return status;
}

void dci_may_fail(bool allowed)
{
        may_fail = allowed;
}

const char *dci_status_name(dci_status status)
{
        switch (status) {
        case DCI_OK:
                return "DCI_OK";
        case DCI_ERR_INVALID:
                return "DCI_ERR_INVALID";
        case DCI_ERR_NUMBER:
                return "DCI_ERR_NUMBER";
        case DCI_ERR_MEMORY:
                return "DCI_ERR_MEMORY";
        case DCI_ERR_LIMIT:
                return "DCI_ERR_LIMIT";
        case DCI_ERR_EXISTS:
                return "DCI_ERR_EXISTS";
        case DCI_ERR_NOT_FOUND:
                return "DCI_ERR_NOT_FOUND";
        case DCI_ERR_FULL:
                return "DCI_ERR_FULL";
        case DCI_ERR_UNSUPPORTED:
                return "DCI_ERR_UNSUPPORTED";
        case DCI_ERR_IO:
                return "DCI_ERR_IO";
        case DCI_ERR_FORMAT:
                return "DCI_ERR_FORMAT";
        case DCI_ERR_CANCELLED:
                return "DCI_ERR_CANCELLED";
        case DCI_ERR_BUSY:
                return "DCI_ERR_BUSY";
        case DCI_ERR_DEVICE:
                return "DCI_ERR_DEVICE";
        default:
                return "unknown status";
        }
}

#define TEXT(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *dci_version(void)
{
        return VERSION_TEXT(DCI_VERSION_MAJOR, DCI_VERSION_MINOR, DCI_VERSION_PATCH);
}

size_t dci_dtype_size(dci_dtype dtype)
{
        switch (dtype) {
        case DCI_F32:
                return 4;
        case DCI_F16:
        case DCI_BF16:
                return 2;
        case DCI_I8:
        case DCI_U8:
                return 1;
        default:
                return 0;
        }
}

const char *dci_dtype_name(dci_dtype dtype)
{
        switch (dtype) {
        case DCI_F32:
                return "f32";
        case DCI_F16:
                return "f16";
        case DCI_BF16:
                return "bf16";
        case DCI_I8:
                return "i8";
        case DCI_U8:
                return "u8";
        default:
                return "unknown";
        }
}

/* A struct may be longer than this library knows (a newer header) as long as the rest says nothing. The ceiling keeps
 * an uninitialised struct_size from sending the check through foreign memory. */
#define LONGEST_STRUCT 4096

dci_status dci_check_aligned(const char *what, const void *array, size_t element_bytes)
{
        if ((uintptr_t)array % element_bytes != 0)
                return dci_fail(DCI_ERR_INVALID, "%s are not aligned to their elements of %zu bytes", what,
                                element_bytes);
        return DCI_OK;
}

dci_status dci_check_struct_size(const char *name, const void *object, size_t struct_size, size_t known)
{
        return dci_check_struct_size_since(name, object, struct_size, known, known);
}

dci_status dci_check_struct_size_since(const char *name, const void *object, size_t struct_size, size_t oldest,
                                       size_t known)
{
        if (struct_size < oldest || struct_size > LONGEST_STRUCT)
                return dci_fail(DCI_ERR_INVALID,
                                "%s has struct_size %zu, expected %zu: prepare it with its init function", name,
                                struct_size, known);
        const unsigned char *bytes = object;
        for (size_t i = known; i < struct_size; i++)
                if (bytes[i] != 0)
                        return dci_fail(DCI_ERR_UNSUPPORTED,
                                        "%s uses a field at byte %zu, this library knows %zu bytes", name, i, known);
        return DCI_OK;
}

dci_status dci_struct_init(const char *name, void *object, size_t struct_size, size_t known)
{
        return dci_struct_init_since(name, object, struct_size, known, known);
}

dci_status dci_struct_init_since(const char *name, void *object, size_t struct_size, size_t oldest, size_t known)
{
        if (object == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", name);
        if (struct_size < oldest || struct_size > LONGEST_STRUCT)
                return dci_fail(DCI_ERR_INVALID, "%s has size %zu, expected %zu", name, struct_size, known);
        memset(object, 0, struct_size);
        memcpy(object, &struct_size, sizeof struct_size);
        return DCI_OK;
}

void dci_struct_give(void *out, const void *from, size_t known)
{
        size_t struct_size;
        memcpy(&struct_size, out, sizeof struct_size);
        memcpy(out, from, struct_size < known ? struct_size : known);
        memcpy(out, &struct_size, sizeof struct_size);
}
