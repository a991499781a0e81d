/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * libhdf5 crashes on some damaged files and never ends on others. So a child process reads the file and sends what it found through a pipe: a parcel
 * that says how much, then the rows. Whatever happens to the child is one sentence here.
 */
#include "bench/common/dataset.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Systems promise less than 2^31 bytes per read or write. */
#define MAX_TRANSFER ((size_t)1 << 30)

/* CPU time the child may take: generous for what a file of this size can hold, little for going round in circles. */
#define CPU_SECONDS(n_bytes) (10 + (n_bytes) / 1000000)

typedef struct parcel {
        dci_status status;
        char sentence[512]; /* of an error */
        dci_metric metric;
        char distance[32];
        size_t n, n_queries, dim, truth_width;
} parcel;

static bool send_bytes(int pipe_end, const void *data, size_t n_bytes)
{
        const char *at = data;
        while (n_bytes > 0) {
                ssize_t sent = write(pipe_end, at, n_bytes < MAX_TRANSFER ? n_bytes : MAX_TRANSFER);
                if (sent < 0 && errno == EINTR)
                        continue;
                if (sent <= 0)
                        return false;
                at += sent;
                n_bytes -= (size_t)sent;
        }
        return true;
}

static bool receive_bytes(int pipe_end, void *out, size_t n_bytes)
{
        char *at = out;
        while (n_bytes > 0) {
                ssize_t got = read(pipe_end, at, n_bytes < MAX_TRANSFER ? n_bytes : MAX_TRANSFER);
                if (got < 0 && errno == EINTR)
                        continue;
                if (got <= 0)
                        return false;
                at += got;
                n_bytes -= (size_t)got;
        }
        return true;
}

/* The child: parses, sends, ends without the cleanup that belongs to its parent. */
static void run_child(int pipe_end, dci_context *context, const char *path, uint64_t n_bytes, size_t limit_base,
                      size_t limit_queries)
{
        bench_dataset data;
        parcel p;
        struct rlimit cpu = {CPU_SECONDS(n_bytes), CPU_SECONDS(n_bytes)};
        memset(&data, 0, sizeof data);
        memset(&p, 0, sizeof p);
        setrlimit(RLIMIT_CPU, &cpu);
        p.status = bench_parse_hdf5(context, path, n_bytes, limit_base, limit_queries, &data);
        snprintf(p.sentence, sizeof p.sentence, "%s", dci_last_error());
        p.metric = data.metric;
        memcpy(p.distance, data.distance, sizeof p.distance);
        p.n = data.base.n;
        p.n_queries = data.queries.n;
        p.dim = data.base.dim;
        p.truth_width = data.truth.width;
        bool sent = send_bytes(pipe_end, &p, sizeof p);
        if (sent && p.status == DCI_OK) {
                sent = send_bytes(pipe_end, data.base.data, data.base.owned_bytes) &&
                       send_bytes(pipe_end, data.queries.data, data.queries.owned_bytes) &&
                       send_bytes(pipe_end, data.truth.data, data.truth.n * data.truth.width * sizeof *data.truth.data);
        }
        _exit(sent ? 0 : 1);
}

static dci_status cut_off(const char *path)
{
        return dci_fail(DCI_ERR_FORMAT, "%s: a damaged HDF5 file: libhdf5 could not read it to the end", path);
}

static dci_status receive_rows(int pipe_end, dci_context *context, const char *path, size_t n, size_t dim,
                               bench_rows *out)
{
        DCI_TRY(bench_rows_alloc(context, path, DCI_F32, n, dim, out));
        if (!receive_bytes(pipe_end, out->owned, out->owned_bytes))
                DCI_TRY(cut_off(path));
        return DCI_OK;
}

static dci_status receive(int pipe_end, dci_context *context, const char *path, bench_dataset *out)
{
        parcel p;
        if (!receive_bytes(pipe_end, &p, sizeof p))
                return cut_off(path);
        p.sentence[sizeof p.sentence - 1] = '\0';
        if (p.status != DCI_OK)
                return dci_fail(p.status, "%s", p.sentence);
        out->metric = p.metric;
        memcpy(out->distance, p.distance, sizeof out->distance);
        out->distance[sizeof out->distance - 1] = '\0';
        dci_status status = receive_rows(pipe_end, context, path, p.n, p.dim, &out->base);
        if (status == DCI_OK)
                status = receive_rows(pipe_end, context, path, p.n_queries, p.dim, &out->queries);
        if (status == DCI_OK && p.truth_width > 0) {
                status = bench_ids_alloc(context, path, p.n_queries, p.truth_width, &out->truth);
                if (status == DCI_OK &&
                    !receive_bytes(pipe_end, out->truth.data, p.n_queries * p.truth_width * sizeof *out->truth.data))
                        status = cut_off(path);
        }
        return status;
}

dci_status bench_read_hdf5(dci_context *context, const char *path, size_t limit_base, size_t limit_queries,
                           bench_dataset *out)
{
        FILE *file;
        uint64_t n_bytes;
        int ends[2];
        dci_status status = bench_open(path, &file, &n_bytes);
        if (status != DCI_OK)
                return status;
        fclose(file);
        bench_name(out->name, sizeof out->name, bench_base_name(path));
        snprintf(out->truth_file, sizeof out->truth_file, "%s", path);
        if (pipe(ends) != 0)
                return dci_fail(BENCH_ERR_RUN, "%s: no pipe to read it through: %s", path, strerror(errno));
        pid_t child = fork();
        if (child == 0) {
                close(ends[0]);
                run_child(ends[1], context, path, n_bytes, limit_base, limit_queries);
        }
        close(ends[1]);
        if (child < 0)
                status = dci_fail(BENCH_ERR_RUN, "%s: no process to read it: %s", path, strerror(errno));
        else
                status = receive(ends[0], context, path, out);
        /* A child that still has something to send meets a closed pipe and ends. */
        close(ends[0]);
        while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
                ;
        return status;
}
