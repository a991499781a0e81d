/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

static const bench_choice parts[] = {
        {"gather", GPUBENCH_GATHER}, {"dense", GPUBENCH_DENSE},         {"sparse", GPUBENCH_SPARSE},
        {"append", GPUBENCH_APPEND}, {"residency", GPUBENCH_RESIDENCY}, {"step", GPUBENCH_STEP},
        {"error", GPUBENCH_ERROR},   {"score", GPUBENCH_SCORE},         {"select", GPUBENCH_SELECT},
        {"encode", GPUBENCH_ENCODE}, {"tail", GPUBENCH_TAIL},           {"kmeans", GPUBENCH_KMEANS},
        {"decode", GPUBENCH_DECODE}, {"soak", GPUBENCH_SOAK},           {NULL, 0}};
static const bench_choice gathers[] = {{"mapped", DCI_GPU_GATHER_MAPPED},   {"staged", DCI_GPU_GATHER_STAGED},
                                       {"batched", DCI_GPU_GATHER_BATCHED}, {"copies", DCI_GPU_GATHER_COPIES},
                                       {"direct", DCI_GPU_GATHER_DIRECT},   {NULL, 0}};

static const bench_choice lists[] = {{"kv", KVBENCH_LISTS_KV}, {"query", KVBENCH_LISTS_QUERY}, {NULL, 0}};
static const bench_choice planners[] = {
        {"auto", DCI_GPU_PLAN_AUTO}, {"host", DCI_GPU_PLAN_HOST}, {"device", DCI_GPU_PLAN_DEVICE}, {NULL, 0}};

bool gpubench_is_decoded(int32_t preset)
{
        static const int32_t decoded[] = {DCI_KV_FULL,     DCI_KV_SKETCH,  DCI_KV_SKETCH_LOWBIT, DCI_KV_QUEST,
                                          DCI_KV_PAGEMEAN, DCI_KV_ARKVALE, DCI_KV_CLUSTERKV,     DCI_KV_ICECACHE};
        for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++)
                if (decoded[i] == preset)
                        return true;
        return false;
}

const char *gpubench_gather_name(int32_t gather)
{
        return bench_choice_name(gathers, gather);
}

/* clang-format off */
static const char help[] =
        "usage: dci-bench gpu [options]\n"
        "\n"
        "Measures the kernels of a KV cache with its rows in host memory and its attention on a device, next to the\n"
        "limits of bus and memory, which are measured in the same run. Times on the device are replays of a graph\n"
        "over input sets that rotate and together exceed the L2 several times: median, p10 and p90 of one call. What is\n"
        "fetched and stored is compared byte by byte, attention with its reference (dense: 700 tokens of each shape;\n"
        "sparse: up to 8192 slots of all sequences together; all: that outputs are finite).\n"
        "\n"
        "  --device N|host           a GPU, or the CPU in its place, with tiny sizes (default 0)\n"
        "  --part LIST               some of gather, dense, sparse, append, residency, step, error, score,\n"
        "                            select, encode, tail, kmeans (default: these), decode, soak\n"
        "  --tiny                    sizes for a sanitizer: figures that mean nothing\n"
        "  --reps N                  samples of a figure, 5 to 10000 (default 30; fewer where they take long)\n"
        "  --device-gib N            device memory for layers that rotate, 1 to 1024 (default 60, or what is free)\n"
        "  --pool-gib N              locked host memory of the part gather, 1 to 64 (default 5)\n"
        "  --piece-mib N             and the pieces that it is locked in, 64 to 65536 (default 256)\n"
        "  --threads N               of the host: staged copies, walks and plans (default all CPUs)\n"
        "  --isa NAME                (default auto)\n"
        "  --seed N                  (default 0)\n"
        "  --json FILE               also write {machine, device, command, limits, rows}\n"
        "\n"
        "residency, step and error (what a trace's decode is off from exact attention, here and by the CPU's dci_kv):\n"
        "  --preset LIST             as in 'kv' (default: residency quest, arkvale, sketch and icecache, others all)\n"
        "  --budget LIST             (default 256,512); step and error take the first\n"
        "  --trace FOLDER            of residency and error: as in 'kv' (default a made-up run of 32768 tokens)\n"
        "  --walk-steps N            of residency and error: at most so many, 2 to 1000000 (default 2048)\n"
        "  --key-bits LIST, --value-bits LIST, --learned LIST, --verify N, --preselect N, --preselect-tokens N,\n"
        "  --preselect-least N, --sums NAME   as in 'kv'\n"
        "\n"
        "step, a model's shape of d 128 and four query heads to a kv head:\n"
        "  --tokens N                of the prompt, 512 to 1048576 (default 32768)\n"
        "  --layers N, --heads N     1 to 128 layers, 1 to 64 kv heads (default 4 and 8)\n"
        "  --batch N                 sequences, copies of one, 1 to 64 (default 1)\n"
        "  --steps N                 tokens that are decoded, 1 to 100000 (default 32)\n"
        "  --gather NAME             mapped, staged, batched, copies or direct (default mapped)\n"
        "  --hot N                   tokens of the hot buffer, 0 to 8192 (default twice the budget)\n"
        "\n"
        "decode, the KV path of a step for all layers of such a shape, lengths and batches one after the other:\n"
        "  --preset LIST             (default full, sketch, sketch+lowbit, quest, pagemean, arkvale, clusterkv, icecache)\n"
        "  --lengths LIST            tokens of the prompt, 512 to 1048576 each (default 8192,36864,131072,262144)\n"
        "  --batches LIST            sequences, 1 to 64 each, with rows of their own (default 1)\n"
        "  --forks                   a batch shares the first sequence's rows: it needs host memory once\n"
        "  --layers N                (default 32); fewer where memory ends, which the table says\n"
        "  --host-gib N              host memory to be locked, 1 to 4096 (default: of what is free, four fifths)\n"
        "  --planner NAME            auto, host or device: who chooses (default auto)\n"
        "  --host-layers N           layers where the host plans, 1 to 128 (default 4)\n"
        "  --host-tokens N           and at most so many tokens of all sequences (default 36864)\n"
        "  --steps N                 (default 32)\n"
        "  --resident MIB            device memory for pages that stay there: less comes over the bus (default 0)\n"
        "  --contiguous LIST         0, 1 or 0,1: groups as scattered rows, or contiguous in host memory, of the presets that\n"
        "                            can have either (default 0)\n"
        "  --lists kv|query          query: a list of the budget for each query head, of the presets that can have that\n"
        "                            (default kv)\n"
        "soak, a long run of replays compared with the CPU's dci_kv, with sequences that come and go through poisoned memory:\n"
        "  --preset LIST             (default sketch, sketch+lowbit, quest, pagemean, arkvale, freekv, clusterkv and louiskv)\n"
        "  --soak-steps N            10 to 1000000 (default 10000)\n"
        "  --layers, --planner, --tokens, --resident   as above (default 4 layers, auto, 8192, 0)\n"
        "\n"
        "ways of the part gather:\n"
        "  (in a table of rows and pages laid out as in a dci_kv of 32 layers, of one layer at a time; and, short, in one of\n"
        "  those scattered over all of --pool-gib, which shows what the device's translation of addresses costs)\n"
        "  copy                      one copy of as many bytes that lie side by side: what 'of copy' is measured by\n"
        "  kernel                    rows are read where they lie; waited: with launch and wait, by the host's clock\n"
        "  staged, batched, copies   the host collects them in a locked buffer and copies that; one batched call; one copy\n"
        "                            per page, two per row. All by the host's clock, as the papers' programs run them\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, the device, a result that fails its check; 2 usage error or bad\n"
        "input, one sentence on stderr. A part that fails does not keep the others from running.\n"
        "\n"
        "examples:\n"
        "  dci-bench gpu --json gpu.json\n"
        "  dci-bench gpu --part residency,step --preset sketch,arkvale --trace bench/data/smollm2-debref-layer06_head0\n"
        "  dci-bench gpu --device host\n";
/* clang-format on */

void gpubench_print_help(void)
{
        printf("%s", help);
}

static bool is_given(int argc, char **argv, const char *name)
{
        const size_t n = strlen(name);
        for (int i = 1; i < argc; i++)
                if (strncmp(argv[i], name, n) == 0 && (argv[i][n] == '\0' || argv[i][n] == '='))
                        return true;
        return false;
}

static dci_status parse_device(const char *text, int32_t *out)
{
        char *end = NULL;
        if (strcmp(text, "host") == 0) {
                *out = DCI_GPU_HOST;
                return DCI_OK;
        }
        const long number = strtol(text, &end, 10);
        if (*text < '0' || *text > '9' || *end != '\0' || number > 1023)
                return dci_fail(DCI_ERR_INVALID, "--device wants a number of 0 to 1023, or host, not '%s'", text);
        *out = (int32_t)number;
        return DCI_OK;
}

/* What a test or a sanitizer has time for. */
static void make_tiny(gpubench_options *o, bool tokens, bool steps, bool walk_steps)
{
        static const bench_sizes short_ones = {2, {600, 1024}};
        o->tiny = true;
        o->reps = 5;
        o->tokens = tokens ? o->tokens : 1024;
        o->steps = steps ? o->steps : 4;
        o->walk_steps = walk_steps ? o->walk_steps : 16;
        o->layers = o->layers < 3 ? o->layers : 3;
        o->heads = o->heads < 2 ? o->heads : 2;
        o->lengths = o->lengths.n > 0 ? o->lengths : short_ones;
        o->soak_steps = o->soak_steps > 0 ? o->soak_steps : 48;
}

/* What is as usual where it was not given. */
static void set_decode_defaults(gpubench_options *o, bool layers, bool tokens)
{
        static const bench_sizes lengths = {4, {8192, 36864, 131072, 262144}};
        o->lengths = o->lengths.n > 0 ? o->lengths : lengths;
        o->soak_steps = o->soak_steps > 0 ? o->soak_steps : 10000;
        o->decode_layers = layers || o->tiny ? o->layers : 32;
        o->soak_tokens = tokens ? o->tokens : o->tiny ? 600 : 8192;
}

dci_status gpubench_options_parse(int argc, char **argv, gpubench_options *o, bool *out_help)
{
        static const bench_sizes budgets = {2, {256, 512}}, one = {1, {1}};
        const char *device = "0";
        *o = (gpubench_options){.budgets = budgets,
                                .reps = 30,
                                .device_gib = 60,
                                .pool_gib = 5,
                                .piece_mib = 256,
                                .tokens = 32768,
                                .layers = 4,
                                .heads = 8,
                                .batch = 1,
                                .steps = 32,
                                .walk_steps = 2048,
                                .hot = DCI_KV_PRESET,
                                .gather = DCI_GPU_GATHER_MAPPED,
                                .batches = one,
                                .contiguous = {1, {0}},
                                .lists = KVBENCH_LISTS_KV,
                                .host_layers = 4,
                                .host_tokens = 36864,
                                .planner = DCI_GPU_PLAN_AUTO};
        for (int32_t part = 1; part <= GPUBENCH_USUAL; part++)
                o->parts |= 1 << part;
        const bench_option more[] = {
                {"device", OPTION_TEXT, &device, 0, 0, NULL},
                {"part", OPTION_CHOICES, &o->parts, 0, 0, parts},
                {"tiny", OPTION_FLAG, &o->tiny, 0, 0, NULL},
                {"trace", OPTION_TEXT, &o->trace, 0, 0, NULL},
                {"budget", OPTION_SIZES, &o->budgets, 1, 4096, NULL},
                {"reps", OPTION_SIZE, &o->reps, 5, 10000, NULL},
                {"device-gib", OPTION_SIZE, &o->device_gib, 1, 1024, NULL},
                {"pool-gib", OPTION_SIZE, &o->pool_gib, 1, 64, NULL},
                {"piece-mib", OPTION_SIZE, &o->piece_mib, 64, 65536, NULL},
                {"tokens", OPTION_SIZE, &o->tokens, 512, (size_t)1 << 20, NULL},
                {"layers", OPTION_SIZE, &o->layers, 1, 128, NULL},
                {"heads", OPTION_SIZE, &o->heads, 1, 64, NULL},
                {"batch", OPTION_SIZE, &o->batch, 1, 64, NULL},
                {"steps", OPTION_SIZE, &o->steps, 1, 100000, NULL},
                {"walk-steps", OPTION_SIZE, &o->walk_steps, 2, 1000000, NULL},
                {"hot", OPTION_SIZE, &o->hot, 0, 8192, NULL},
                {"gather", OPTION_CHOICE, &o->gather, 0, 0, gathers},
                {"lengths", OPTION_SIZES, &o->lengths, 512, (size_t)1 << 20, NULL},
                {"batches", OPTION_SIZES, &o->batches, 1, 64, NULL},
                {"forks", OPTION_FLAG, &o->forks, 0, 0, NULL},
                {"host-gib", OPTION_SIZE, &o->host_gib, 1, 4096, NULL},
                {"host-layers", OPTION_SIZE, &o->host_layers, 1, 128, NULL},
                {"host-tokens", OPTION_SIZE, &o->host_tokens, 512, (size_t)1 << 26, NULL},
                {"planner", OPTION_CHOICE, &o->planner, 0, 0, planners},
                {"contiguous", OPTION_SIZES, &o->contiguous, 0, 1, NULL},
                {"lists", OPTION_CHOICE, &o->lists, 0, 0, lists},
                {"resident", OPTION_SIZE, &o->resident_mib, 0, (size_t)1 << 20, NULL},
                {"soak-steps", OPTION_SIZE, &o->soak_steps, 10, 1000000, NULL},
        };
        dci_status status = kvbench_arms_parse(argc, argv, "all", more, sizeof more / sizeof *more, &o->arms, out_help);
        if (status != DCI_OK)
                return bench_fail_more(status, "; try 'dci-bench gpu --help'");
        if (*out_help)
                return DCI_OK;
        o->presets_given = is_given(argc, argv, "--preset");
        if (!is_given(argc, argv, "--threads"))
                o->arms.threads = 0;
        status = parse_device(device, &o->device);
        if (status == DCI_OK && (o->tiny || o->device == DCI_GPU_HOST))
                make_tiny(o, is_given(argc, argv, "--tokens"), is_given(argc, argv, "--steps"),
                          is_given(argc, argv, "--walk-steps"));
        set_decode_defaults(o, is_given(argc, argv, "--layers"), is_given(argc, argv, "--tokens"));
        return status;
}
