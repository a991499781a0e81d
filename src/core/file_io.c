/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reading a regular file whose size is known, and replacing a file so that no reader ever meets half of it. */
#include "core/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"

/* Systems promise less than 2^31 bytes per read or write. */
#define MAX_TRANSFER ((size_t)1 << 30)
/* Linux opens no longer path either (PATH_MAX). */
#define MAX_PATH_BYTES 4096
#define NAME_BYTES 200

static dci_status fail_errno(const char *verb, const char *name, int error)
{
        char text[128];
        if (strerror_r(error, text, sizeof text) != 0)
                snprintf(text, sizeof text, "error %d", error);
        return dci_fail_errno(dci_fail(DCI_ERR_IO, "cannot %s %s: %s", verb, name, text), error);
}

/* The end of a long path says more than its beginning, and leaves room in the message for what went wrong. */
static const char *name_of(const char *path)
{
        size_t n = strlen(path);
        return n > NAME_BYTES ? path + n - NAME_BYTES : path;
}

static dci_status refuse_unless_regular(const char *name, mode_t mode)
{
        if (S_ISREG(mode))
                return DCI_OK;
        const char *what = "a device or socket";
        if (S_ISDIR(mode))
                what = "a directory";
        else if (S_ISFIFO(mode))
                what = "a FIFO";
        else if (S_ISLNK(mode))
                what = "a symbolic link";
        dci_status status = dci_fail(DCI_ERR_INVALID, "%s is %s, wanted a regular file%s", name, what,
                                     S_ISLNK(mode) ? ": save to the path that it points to" : "");
        return S_ISDIR(mode) ? dci_fail_errno(status, EISDIR) : status;
}

/* Systems of files that are far away, or are programs themselves, may let a signal interrupt any call. All but rename
 * can be made again; of that one nobody could say whether it had been done. */
#define UNINTERRUPTED(result, call)                                                                                    \
        do                                                                                                             \
                (result) = (call);                                                                                     \
        while ((result) < 0 && errno == EINTR)

static int open_at(int directory, const char *path, int flags, mode_t mode)
{
        int descriptor;
        UNINTERRUPTED(descriptor, openat(directory, path, flags | O_CLOEXEC, mode));
        return descriptor;
}

dci_status dci_source_open(const char *path, dci_source *out_source)
{
        if (path == NULL)
                return dci_fail(DCI_ERR_INVALID, "path is NULL");
        const char *name = name_of(path);
        /* O_NONBLOCK: opening a FIFO must not wait for a writer. It changes nothing for a regular file. */
        int descriptor = open_at(AT_FDCWD, path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
        if (descriptor < 0)
                return fail_errno("open", name, errno);
        struct stat found;
        dci_status status;
        int result;
        UNINTERRUPTED(result, fstat(descriptor, &found));
        if (result != 0)
                status = fail_errno("examine", name, errno);
        else
                status = refuse_unless_regular(name, found.st_mode);
        if (status == DCI_OK && (uintmax_t)found.st_size > SIZE_MAX)
                status = dci_fail(DCI_ERR_LIMIT, "%s has %ju bytes, this program can address %zu", name,
                                  (uintmax_t)found.st_size, SIZE_MAX);
        if (status != DCI_OK) {
                close(descriptor);
                return status;
        }
        *out_source = (dci_source){name, descriptor, (size_t)found.st_size};
        return DCI_OK;
}

dci_status dci_source_read(dci_source *source, void *out, size_t n_bytes)
{
        unsigned char *at = out;
        size_t left = n_bytes;
        while (left > 0) {
                ssize_t n;
                UNINTERRUPTED(n, read(source->descriptor, at, left < MAX_TRANSFER ? left : MAX_TRANSFER));
                if (n < 0)
                        return fail_errno("read", source->name, errno);
                if (n == 0)
                        return dci_fail(DCI_ERR_FORMAT,
                                        "%s became shorter than %zu bytes while it was read: %zu are missing",
                                        source->name, source->n_bytes, left);
                at += n;
                left -= (size_t)n;
        }
        return DCI_OK;
}

void dci_source_close(dci_source *source)
{
        /* Nothing was written, so closing has nothing to report. */
        close(source->descriptor);
        source->descriptor = -1;
}

/* Opens the folder of `path` and finds the last component. Later steps go through the descriptor: they need no path
 * of their own, and a folder renamed meanwhile stays the same folder. */
static dci_status open_directory(const char *path, dci_replacement *replacement)
{
        char folder[MAX_PATH_BYTES] = ".";
        const char *slash = strrchr(path, '/');
        if (slash != NULL) {
                size_t n = slash == path ? 1 : (size_t)(slash - path);
                if (n >= sizeof folder)
                        return dci_fail(DCI_ERR_LIMIT,
                                        "the folder of %s has a path of %zu bytes, at most %zu are possible",
                                        replacement->name, n, sizeof folder - 1);
                memcpy(folder, path, n);
                folder[n] = '\0';
        }
        replacement->target = slash == NULL ? path : slash + 1;
        if (replacement->target[0] == '\0')
                return dci_fail(DCI_ERR_INVALID, "the path '%s' names no file", replacement->name);
        replacement->directory = open_at(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0);
        if (replacement->directory < 0)
                return fail_errno("open the folder of", replacement->name, errno);
        return DCI_OK;
}

/*
 * Temporary files of one target have one of SLOTS names, made from a checksum of its name. Whoever writes one holds its lock
 * (flock) from creation to renaming or removal; the system releases it when the process ends, however it ends. So a file that
 * can be locked was left by a process that was killed, or has been created but not yet locked: its creator then finds it
 * removed, and takes the next name. Where a file system has no such locks, nothing is removed.
 */
#define SLOTS 16

static void name_temporary(dci_replacement *replacement, unsigned slot)
{
        const uint32_t crc = dci_crc32c(0, replacement->target, strlen(replacement->target));
        snprintf(replacement->temporary, sizeof replacement->temporary, ".dci-%08x-%02x.tmp", (unsigned)crc, slot);
}

static bool lock(int descriptor)
{
        int result;
        UNINTERRUPTED(result, flock(descriptor, LOCK_EX | LOCK_NB));
        return result == 0;
}

/* Whether the name is still that of the open file. */
static bool is_named(const dci_replacement *replacement, int descriptor)
{
        struct stat open_file, named;
        int result;
        UNINTERRUPTED(result, fstat(descriptor, &open_file));
        if (result == 0)
                UNINTERRUPTED(result,
                              fstatat(replacement->directory, replacement->temporary, &named, AT_SYMLINK_NOFOLLOW));
        return result == 0 && open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino &&
               S_ISREG(open_file.st_mode);
}

/* Removes the file of the present name if a process that was killed has left it. */
static void remove_stale(const dci_replacement *replacement)
{
        const int flags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        int descriptor = open_at(replacement->directory, replacement->temporary, O_WRONLY | flags, 0);
        if (descriptor < 0 &&
            errno == EACCES) /* file systems on a network want it writable for a lock, others do not */
                descriptor = open_at(replacement->directory, replacement->temporary, O_RDONLY | flags, 0);
        if (descriptor < 0)
                return;
        int result;
        if (lock(descriptor) && is_named(replacement, descriptor))
                UNINTERRUPTED(result, unlinkat(replacement->directory, replacement->temporary, 0));
        close(descriptor);
}

/* Creates the file of the present name, and locks it. DCI_ERR_EXISTS, without a sentence: the name is in use. */
static dci_status create_locked(dci_replacement *replacement, mode_t mode)
{
        const int descriptor =
                open_at(replacement->directory, replacement->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
        if (descriptor < 0 && errno == EEXIST)
                return DCI_ERR_EXISTS;
        if (descriptor < 0)
                return fail_errno("create a temporary file next to", replacement->name, errno);
        struct stat created;
        int result = 0;
        dci_status status = DCI_OK;
        if (!lock(descriptor))
                status =
                        errno == EWOULDBLOCK ? DCI_ERR_EXISTS : DCI_OK; /* another save is removing it; no locks here */
        if (status == DCI_OK)
                UNINTERRUPTED(result, fstat(descriptor, &created));
        if (result != 0) {
                status = fail_errno("examine the temporary file next to", replacement->name, errno);
                UNINTERRUPTED(result, unlinkat(replacement->directory, replacement->temporary, 0));
        } else if (status == DCI_OK && created.st_nlink == 0) {
                status = DCI_ERR_EXISTS;
        }
        if (status == DCI_OK)
                replacement->descriptor = descriptor;
        else
                close(descriptor);
        return status;
}

/* Takes the first free name, and removes what killed processes left under the others. */
static dci_status create_temporary(dci_replacement *replacement, mode_t mode)
{
        unsigned own = SLOTS;
        for (unsigned slot = 0; slot < SLOTS; slot++) {
                name_temporary(replacement, slot);
                remove_stale(replacement);
                const dci_status status = own < SLOTS ? DCI_ERR_EXISTS : create_locked(replacement, mode);
                if (status == DCI_OK)
                        own = slot;
                else if (status != DCI_ERR_EXISTS)
                        return status;
        }
        if (own == SLOTS)
                return dci_fail(DCI_ERR_IO, "cannot create a temporary file next to %s: %d saves to it are under way",
                                replacement->name, SLOTS);
        name_temporary(replacement, own);
        return DCI_OK;
}

dci_status dci_replace_begin(const char *path, dci_replacement *out_replacement)
{
        if (path == NULL)
                return dci_fail(DCI_ERR_INVALID, "path is NULL");
        dci_replacement replacement = {.name = name_of(path)};
        dci_status status = open_directory(path, &replacement);
        if (status != DCI_OK)
                return status;
        struct stat old;
        int result;
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): open_directory sets the target. */
        UNINTERRUPTED(result, fstatat(replacement.directory, replacement.target, &old, AT_SYMLINK_NOFOLLOW));
        const bool exists = result == 0;
        mode_t mode = 0666; /* less the umask, like any new file */
        if (exists) {
                status = refuse_unless_regular(replacement.name, old.st_mode);
                mode = old.st_mode & 0777;
        } else if (errno != ENOENT) {
                status = fail_errno("examine", replacement.name, errno);
        }
        if (status == DCI_OK)
                status = create_temporary(&replacement, mode);
        if (status != DCI_OK) {
                close(replacement.directory);
                return status;
        }
        /* The umask took bits that the old file has. */
        if (exists)
                UNINTERRUPTED(result, fchmod(replacement.descriptor, mode));
        if (exists && result != 0)
                return dci_replace_end(&replacement, fail_errno("set the permissions of", replacement.name, errno));
        *out_replacement = replacement;
        return DCI_OK;
}

dci_status dci_replace_write(void *replacement, const void *data, size_t n_bytes)
{
        const dci_replacement *to = replacement;
        const unsigned char *at = data;
        while (n_bytes > 0) {
                ssize_t n;
                UNINTERRUPTED(n, write(to->descriptor, at, n_bytes < MAX_TRANSFER ? n_bytes : MAX_TRANSFER));
                if (n < 0)
                        return fail_errno("write", to->name, errno);
                if (n == 0)
                        return dci_fail(DCI_ERR_IO, "cannot write %s: none of %zu bytes were taken", to->name, n_bytes);
                at += n;
                n_bytes -= (size_t)n;
        }
        return DCI_OK;
}

static int flush(int descriptor)
{
        int result;
        UNINTERRUPTED(result, fsync(descriptor));
        return result;
}

dci_status dci_replace_end(dci_replacement *replacement, dci_status status)
{
        const char *name = replacement->name;
        int result;
        if (status == DCI_OK && flush(replacement->descriptor) != 0)
                status = fail_errno("flush", name, errno);
        if (status == DCI_OK &&
            renameat(replacement->directory, replacement->temporary, replacement->directory, replacement->target) != 0)
                status = fail_errno("replace", name, errno);
        if (status != DCI_OK)
                UNINTERRUPTED(result, unlinkat(replacement->directory, replacement->temporary, 0));
        /* EINVAL: a file system that has no flush for folders, so there is nothing left to wait for. */
        else if (flush(replacement->directory) != 0 && errno != EINVAL)
                status = fail_errno("flush the folder, so a power cut may undo the replacement of", name, errno);
        /* Last, as it releases the lock. What closing could report, the flush has reported. */
        close(replacement->descriptor);
        close(replacement->directory);
        replacement->directory = replacement->descriptor = -1;
        return status;
}
