/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/gpu/gpu.h"

#include <string.h>

static const struct {
        int32_t part;
        const char *name;
        dci_status (*run)(gpubench *b);
} parts[] = {{GPUBENCH_GATHER, "gather", gpubench_gather},
             {GPUBENCH_DENSE, "dense", gpubench_dense},
             {GPUBENCH_SPARSE, "sparse", gpubench_sparse},
             {GPUBENCH_APPEND, "append", gpubench_append},
             {GPUBENCH_RESIDENCY, "residency", gpubench_residency},
             {GPUBENCH_STEP, "step", gpubench_step},
             {GPUBENCH_ERROR, "error", gpubench_error},
             {GPUBENCH_SCORE, "score", gpubench_score},
             {GPUBENCH_SELECT, "select", gpubench_select},
             {GPUBENCH_ENCODE, "encode", gpubench_encode},
             {GPUBENCH_TAIL, "tail", gpubench_tail},
             {GPUBENCH_KMEANS, "kmeans", gpubench_kmeans},
             {GPUBENCH_DECODE, "decode", gpubench_decode},
             {GPUBENCH_SOAK, "soak", gpubench_soak}};

static json_t *report_json(const gpubench *b, int argc, char **argv)
{
        const dci_gpu_info *info = &b->gpu->info;
        json_t *device = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:b}", "name", info->name,
                                   "runs_on", b->ops->name, "number", (int)info->device, "major", (int)info->major,
                                   "minor", (int)info->minor, "multiprocessors", (int)info->multiprocessors,
                                   "numa_node", (int)info->numa_node, "driver", (int)info->driver, "runtime",
                                   (int)info->runtime, "memory_bytes", (json_int_t)info->memory_bytes, "l2_bytes",
                                   (json_int_t)info->l2_bytes, "tiny", (int)b->options->tiny);
        json_t *limits = json_pack("{s:f, s:f, s:f, s:f}", "memory_specified_gb_s", b->limits.specified * 1e-9,
                                   "memory_copy_gb_s", b->limits.memory * 1e-9, "bulk_to_device_gb_s",
                                   b->limits.to_device * 1e-9, "bulk_to_host_gb_s", b->limits.to_host * 1e-9);
        return json_pack("{s:o, s:o, s:o, s:o, s:O}", "machine", bench_machine_json(b->context), "device", device,
                         "command", bench_command_json(argc, argv), "limits", limits, "rows", b->rows);
}

static void print_device(const gpubench *b)
{
        const dci_gpu_info *info = &b->gpu->info;
        char memory[32], l2[32];
        bench_format_bytes(memory, sizeof memory, info->memory_bytes);
        bench_format_bytes(l2, sizeof l2, info->l2_bytes);
        printf("%s, compute capability %d.%d, %d multiprocessors, %s of memory, L2 of %s; host: %s, %d threads%s\n",
               info->name, (int)info->major, (int)info->minor, (int)info->multiprocessors, memory, l2,
               dci_isa_name(dci_context_isa(b->context)), (int)dci_context_threads(b->context),
               b->options->tiny ? "; TINY SIZES: the figures mean nothing" : "");
}

/* Runs all parts, also when one fails, since a device's time is dear, and returns the first failure. */
static dci_status run_parts(gpubench *b)
{
        char failure[1024] = "";
        dci_status failed = DCI_OK;
        const dci_status status = gpubench_measure_limits(b);
        for (size_t i = 0; i < sizeof parts / sizeof *parts && status == DCI_OK; i++) {
                if ((b->options->parts & 1 << parts[i].part) == 0)
                        continue;
                const size_t mark = b->n_areas;
                const dci_status ran = parts[i].run(b);
                fflush(stdout);
                gpubench_release(b, mark);
                if (ran == DCI_OK)
                        continue;
                printf("%s failed: %s\n", parts[i].name, dci_last_error());
                if (failed == DCI_OK)
                        snprintf(failure, sizeof failure, "%s: %s", parts[i].name, dci_last_error());
                failed = failed == DCI_OK ? ran : failed;
        }
        return failed == DCI_OK ? status : dci_fail(failed, "%s", failure);
}

static dci_status run(gpubench *b, int argc, char **argv)
{
        const gpubench_options *o = b->options;
        dci_gpu_config config;
        dci_status status = dci_gpu_config_init(&config, sizeof config);
        config.device = o->device;
        if (status == DCI_OK)
                status = dci_gpu_create(b->context, &config, &b->gpu);
        if (status != DCI_OK)
                return status;
        b->ops = b->gpu->ops;
        b->rows = json_array();
        status = b->rows != NULL ? gpubench_begin(b) : dci_fail(DCI_ERR_MEMORY, "the report could not be had");
        if (status == DCI_OK) {
                print_device(b);
                status = run_parts(b);
        }
        gpubench_end(b);
        if (o->arms.json != NULL && b->rows != NULL) {
                /* What was measured before a failure is written, too; the failure is what is reported. */
                char failure[1024];
                snprintf(failure, sizeof failure, "%s", dci_last_error());
                const dci_status written = bench_write_json(report_json(b, argc, argv), o->arms.json);
                status = status == DCI_OK ? written : dci_fail(status, "%s", failure);
        }
        json_decref(b->rows);
        return status;
}

int bench_gpu(int argc, char **argv)
{
        gpubench_options o;
        gpubench b = {.options = &o};
        bool help = false;
        dci_context_config config;
        dci_status status = gpubench_options_parse(argc, argv, &o, &help);
        if (status == DCI_OK && help) {
                gpubench_print_help();
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK && o.arms.json != NULL)
                status = bench_check_writable(o.arms.json);
        if (status == DCI_OK)
                status = dci_context_config_init(&config, sizeof config);
        if (status == DCI_OK) {
                config.n_threads = (int32_t)o.arms.threads;
                config.isa = o.arms.isa;
                status = dci_context_create(&config, &b.context);
        }
        if (status == DCI_OK)
                status = run(&b, argc, argv);
        const int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("gpu", status);
        dci_gpu_destroy(b.gpu);
        dci_context_destroy(b.context);
        return code;
}
