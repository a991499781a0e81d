/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench: a command line that means nothing is one sentence and exit code 2; the help names every option. */
#include <string.h>

#include "tests/bench_files.h"

/* Arguments, separated by blanks; ~ stands for a blank within one. */
static const struct {
        const char *arguments, *part;
} mistakes[] = {
        {"", "a command is missing"},
        {"anns", "unknown command 'anns'"},
        {"ann", "data is missing"},
        {"ann --frobnicate 1", "unknown option '--frobnicate'"},
        {"ann stray", "unknown option 'stray'"},
        {"ann --bas x", "unknown option '--bas'"},
        {"ann --k", "--k wants a value"},
        {"ann --k 0", "--k wants an integer of 1 to 16777216, not '0'"},
        {"ann --k 16777217", "not '16777217'"},
        {"ann --k -1", "not '-1'"},
        {"ann --k=1e3", "not '1e3'"},
        {"ann --k 18446744073709551617", "not '18446744073709551617'"},
        {"ann --k 3 --k 4", "--k is given twice"},
        {"ann --threads 1025", "--threads wants an integer of 1 to 1024"},
        {"ann --repeat 0", "--repeat wants an integer of 1 to 1000"},
        {"ann --truth-check 0", "--truth-check wants an integer"},
        {"ann --limit-base 0", "--limit-base wants an integer"},
        {"ann --metric manhattan", "--metric wants one of ip, l2, cosine, not 'manhattan'"},
        {"ann --kind tree", "--kind wants one or more of flat, pdci, mdci, auto, not 'tree'"},
        {"ann --kind pdci,tree", "not 'pdci,tree'"},
        {"ann --kind flat,", "not 'flat,'"},
        {"ann --kind flat~pdci", "not 'flat pdci'"},
        {"ann --kind pdc", "not 'pdc'"},
        {"ann --num-comp-indices 0", "--num-comp-indices wants an integer of 1 to 4096, not '0'"},
        {"ann --num-simp-indices 4097", "--num-simp-indices wants an integer of 1 to 4096, not '4097'"},
        {"ann --data a.hdf5 --kind pdci --num-comp-indices 65 --num-simp-indices=64",
         "65 composite indices of 64 simple ones each: --num-comp-indices times --num-simp-indices is at most 4096"},
        {"ann --seed -1", "--seed wants an integer of 0 to 9223372036854775807, not '-1'"},
        {"ann --seed 9223372036854775808", "not '9223372036854775808'"},
        {"ann --prop-to-visit 0", "--prop-to-visit wants numbers above 0 and at most 1"},
        {"ann --prop-to-visit 0.5,1.01", "not '0.5,1.01'"},
        {"ann --prop-to-visit=", "--prop-to-visit wants numbers"},
        {"ann --prop-to-retrieve 0.1,,1", "--prop-to-retrieve wants numbers"},
        {"ann --prop-to-retrieve 0.1,", "not '0.1,'"},
        {"ann --prop-to-retrieve -0.1", "not '-0.1'"},
        {"ann --prop-to-retrieve nan", "not 'nan'"},
        {"ann --prop-to-retrieve 0x.8", "not '0x.8'"},
        {"ann --prop-to-retrieve ~0.1", "not ' 0.1'"},
        {"ann --prop-to-retrieve 1e-400", "not '1e-400'"},
        {"ann --prop-to-retrieve 0.5.5", "not '0.5.5'"},
        {"ann --prop-to-retrieve 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "at most 32"},
        {"ann --data a.hdf5 --num-comp-indices 2", "--num-comp-indices needs --kind pdci"},
        {"ann --data a.hdf5 --num-simp-indices 7", "--num-simp-indices needs --kind pdci"},
        {"ann --data a.hdf5 --kind flat --seed 0", "--seed needs --kind pdci, mdci or auto"},
        {"ann --data a.hdf5 --prop-to-visit 1", "--prop-to-visit needs --kind pdci, mdci or auto"},
        {"ann --data a.hdf5 --prop-to-retrieve 1", "--prop-to-retrieve needs --kind pdci"},
        {"ann --rows f64", "--rows wants one of f32, f16, bf16"},
        {"ann --mode all", "--mode wants one of one, batch, both"},
        {"ann --isa mmx", "--isa wants one of"},
        {"ann --json=", "--json wants a value"},
        {"ann --base a.npy", "--base needs --query"},
        {"ann --query a.npy", "--query needs --base"},
        {"ann --base a.npy --query b.npy", "--metric is missing"},
        {"ann --data a.hdf5 --trace b", "exclude each other"},
        {"ann --data a.hdf5 --truth t.ivecs --limit-base 9", "does not fit --limit-base"},
        {"kmeans", "data is missing: --base or --trace"},
        {"kmeans --base x --trace y", "--base and --trace exclude each other"},
        {"kmeans --base x", "--clusters is missing"},
        {"kmeans --base x --clusters 5 --page 8", "--page needs --trace"},
        {"kmeans --base x --clusters 5 --seeds 2", "--seeds needs --trace"},
        {"kmeans --trace x --init even --seeds 2", "--seeds 2 needs a start that is drawn"},
        {"kmeans --base x --clusters 5 --slack 1.5", "--slack needs --trace"},
        {"kmeans --trace x --clusters 5", "--clusters needs --base"},
        {"kmeans --trace x --limit 5", "--limit needs --base"},
        {"kmeans --trace x --rows f16", "--rows needs --base"},
        {"kmeans --trace x --init-file c", "--init-file needs --base"},
        {"kmeans --trace x --capacity 5", "--capacity needs --base"},
        {"kmeans --trace x --rounds 5", "--rounds needs --base"},
        {"kmeans --trace x --out-centroids c", "--out-centroids needs --base"},
        {"kmeans --trace x --threads 1,2", "--threads: --trace takes one number"},
        {"kmeans --trace x --slack 0.9", "--slack wants a number of 1 to 16, not '0.9'"},
        {"kmeans --trace x --slack nan", "--slack wants a number of 1 to 16, not 'nan'"},
        {"kmeans --base x --clusters 5 --init even --init-file c", "--init and --init-file exclude each other"},
        {"kmeans --base x --clusters 5,6 --init-file c", "--init-file goes with one number"},
        {"kmeans --base x --init-file c --segment-rows 32", "exclude each other: given"},
        {"kmeans --base x --init-file c --redo 2", "--redo 2 needs a start that is drawn"},
        {"kmeans --trace x --init even --redo 2", "--redo 2 needs a start that is drawn"},
        {"kmeans --base x --clusters 5,6 --out-centroids c", "--out-centroids goes with one number"},
        {"kmeans --base x --clusters 5 --iter-global 2", "--iter-global needs --segment-rows"},
        {"kmeans --base x --clusters 5 --metric l2 --centroid unit", "--centroid needs --metric cosine"},
        {"kmeans --base x --clusters 0", "--clusters wants integers of 1 to"},
        {"kmeans --base x --clusters 5 --init given", "--init wants one of random, plusplus, even"},
        {"kmeans --base x --clusters 5 --tolerance 0", "--tolerance wants a number above 0"},
        {"kmeans --base x --clusters 5 --iter 100001", "--iter wants an integer of 0 to 100000"},
        {"kv", "data is missing: --trace or --synthetic"},
        {"kv --synthetic 4096 --extend 8192", "--extend needs --trace"},
        {"kv --trace a --promotion-subseq 0.6", "--promotion-subseq wants a number from 0 to 0.5, or -1, not '0.6'"},
        {"kv --trace t --synthetic 4096", "--trace and --synthetic exclude each other"},
        {"kv --synthetic 100", "--synthetic wants an integer of 2048 to 4194304, not '100'"},
        {"kv --trace a,,b", "--trace wants folders, comma separated, not 'a,,b'"},
        {"kv --trace=", "--trace wants a value"},
        {"kv --trace t --preset foo", "each once, not 'foo'"},
        {"kv --trace t --preset full,", "each once, not 'full,'"},
        {"kv --trace t --preset full,full", "each once, not 'full,full'"},
        {"kv --trace t --preset all,full", "sketch+lowbit, icecache, clusterkv, prkv, louiskv, retroinfer, freekv, "
                                           "sketch+groups, sketch+verify, pariskv, each once, not 'all,full'"},
        {"kv --trace t --budget 0", "--budget wants integers of 1 to 134217728"},
        {"kv --trace t --budget 128,", "not '128,'"},
        {"kv --trace t --kept none", "--kept wants one of common, paper, not 'none'"},
        {"kv --trace t --every 0", "--every wants an integer of 1 to"},
        {"kv --trace t --steps 0", "--steps wants an integer of 1 to"},
        {"kv --trace t --judged-only", "--judged-only needs --every"},
        {"kv --trace t --updates none", "--updates wants one or more of on, off, not 'none'"},
        {"kv --synthetic 4096 --anchor t", "--anchor wants --trace, and no --schedule"},
        {"kv --trace t --anchor t --schedule every", "--anchor wants --trace, and no --schedule"},
        {"kv --trace t --frozen-prompt --updates on,off", "--frozen-prompt has no updates"},
        {"kv --trace t --key-bits 5", "--key-bits wants one or more of 1, 2, 3, 4, 8, not '5'"},
        {"kv --trace t --value-bits 3", "--value-bits wants one or more of 1, 2, 4, 8, not '3'"},
        {"kv --trace t --learned none", "--learned wants one or more of random, learned, not 'none'"},
        {"kv --trace t --combine max", "--combine wants one of softmax, mean, each, not 'max'"},
        {"kv --trace t --page-tokens 12", "--page-tokens wants one of 8, 16, 32, 64, not '12'"},
        {"kv --trace t --summary keys", "--summary wants one of mean, minmax, cuboid, mean_std, not 'keys'"},
        {"kv --trace t --deviation-weight 0", "--deviation-weight wants a number above 0, up to 100, not '0'"},
        {"kv --trace t --deviation-weight 101", "not '101'"},
        {"kv --trace t --deviation-weight nan", "not 'nan'"},
        {"kv --trace t --schedule once", "--schedule wants one of every, periodic, boundary, ahead, not 'once'"},
        {"kv --trace t --tau 1.5", "--tau wants a number above -1"},
        {"kv --trace t --tau -1", "not '-1'"},
        {"kv --trace t --tau nan", "not 'nan'"},
        {"kv --trace t --tau 0.5x", "not '0.5x'"},
        {"kv --trace t --tau 0.5 --retrieval-rate 0.5", "--tau and --retrieval-rate exclude each other"},
        {"kv --trace t --retrieval-rate 0", "--retrieval-rate wants"},
        {"kv --trace t --static-share 1.5", "--static-share wants a number from 0 to 1"},
        {"kv --trace t --static-share -0.5", "or online, not '-0.5'"},
        {"kv --trace t --static-share nan", "not 'nan'"},
        {"kv --trace t --ring 0", "--ring"},
        {"kv --trace t --period 0", "--period wants an integer of 1 to"},
        {"kv --trace t --threads 0", "--threads wants an integer of 1 to 1024"},
        {"kv --trace t --frozen-prompt=1", "--frozen-prompt takes no value"},
        {"ann --data a.hdf5 --promotion-prob 0.1", "--promotion-prob needs --kind mdci"},
        {"ann --data a.hdf5 --promotion-prob-subseq 0.1", "--promotion-prob-subseq needs --kind mdci"},
        {"ann --data a.hdf5 --page-rows 8", "--page-rows needs --kind mdci"},
        {"ann --data a.hdf5 --top-nodes 8", "--top-nodes needs --kind mdci"},
        {"ann --data a.hdf5 --cell-simp-indices 8", "--cell-simp-indices needs --kind mdci"},
        {"ann --data a.hdf5 --kind pdci --field-of-view 8", "--field-of-view needs --kind mdci"},
        {"ann --data a.hdf5 --kind mdci --num-simp-indices 8", "--num-simp-indices needs --kind pdci"},
        {"ann --data a.hdf5 --seed 8", "--seed needs --kind pdci, mdci or auto"},
        {"ann --data a.hdf5 --kind mdci --promotion-prob 0.6", "--promotion-prob is 0.6, allowed is"},
        {"ann --data a.hdf5 --kind mdci --promotion-prob-subseq 1e-4", "--promotion-prob-subseq is 0.0001"},
        {"ann --promotion-prob 0", "--promotion-prob wants a number above 0 and at most 1, not '0'"},
        {"ann --data a.hdf5 --kind mdci --page-rows 12", "--page-rows is 12, allowed are powers"},
        {"ann --page-rows 2", "--page-rows wants an integer of 4 to 256"},
        {"ann --field-of-view 1,0", "--field-of-view wants integers of 1 to 2147483584, comma separated"},
        {"ann --field-of-view 1,", "not '1,'"},
        {"ann --data a --kind mdci --field-of-view 1 --prop-to-visit 1", "exclude each other"},
        {"ann --group 9", "--group wants an integer of 1 to 8"},
        {"ann --data a.hdf5 --group-union", "--group-union needs --group"},
        {"ann --group-union=1", "--group-union takes no value"},
        {"growth --sizes 100,50", "--sizes: 50 after 100; they must grow"},
        {"growth --sizes 5", "--k 10 is more than the smallest of --sizes, 5"},
        {"growth --kind flat,mdci", "measures one kind"},
        {"growth --noise 0", "--noise wants a number"},
        {"latency --limit-base 5", "need data"},
        {"latency --trace x --dim 5", "--dim and --latent are for random rows"},
        {"latency --readers 65", "--readers wants integers of 1 to 64"},
        {"latency --prop-to-visit 0.1,0.2", "takes one effort"},
        {"papers", "data is missing: --trace"},
        {"papers --trace a,,b", "--trace wants folders, comma separated, not 'a,,b'"},
        {"papers --trace t --figure foo", "--figure wants one or more of token-recall"},
        {"papers --trace t --tau -1",
         "--tau wants numbers above -1 and at most 1, comma separated and at most 32, not '-1'"},
        {"papers --trace t --tau 1.01", "--tau wants numbers above -1 and at most 1"},
        {"papers --trace t --tau nan", "--tau wants numbers"},
        {"papers --trace t --tau 0.5,", "not '0.5,'"},
        {"papers --trace t --tau ~0.5", "--tau wants numbers"},
        {"papers --trace t --static-ratio -0.1", "--static-ratio wants numbers from 0 and at most 1"},
        {"papers --trace t --static-ratio 1.5", "--static-ratio wants numbers from 0 and at most 1"},
        {"papers --trace t --period 0", "--period wants an integer of 1 to"},
        {"papers --trace t --window 0", "--window wants an integer of 1 to"},
        {"papers --trace t --page 65", "--page wants an integer of 1 to 64"},
        {"papers --trace t --reach 0", "--reach wants integers of 1 to"},
        {"papers --trace t --stride 0", "--stride wants integers of 1 to"},
        {"papers --trace t --cluster-rows 0", "--cluster-rows wants integers of 1 to"},
        {"papers --trace t --budget 0", "--budget wants integers of 1 to"},
        {"papers --trace t --preset foo", "each once, not 'foo'"},
        {"papers --trace t --every 0", "--every wants an integer of 1 to"},
        {"ann --sketch-bits 5", "--sketch-bits wants one or more of 0, 1, 2, 3, 4, 8, not '5'"},
        {"ann --sketch-bits 4,", "not '4,'"},
        {"ann --sketch-bits -1", "not '-1'"},
        {"ann --rerank 0.5", "--rerank wants numbers of 1 to 2147483584, or all, comma separated and at most 32"},
        {"ann --rerank 2,inf", "not '2,inf'"},
        {"ann --rerank 2,", "not '2,'"},
        {"ann --rerank al", "not 'al'"},
        {"ann --rerank alle", "not 'alle'"},
        {"ann --rerank 1e999", "not '1e999'"},
        {"ann --rerank 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "at most 32"},
        {"ann --guarantee 0", "--guarantee wants numbers above 0 and at most 1"},
        {"ann --guarantee all", "not 'all'"},
        {"ann --pareto=1", "--pareto takes no value"},
        {"ann --fit=", "--fit wants a value"},
        {"ann --data a.hdf5 --rerank 2", "--rerank needs --sketch-bits of 1 or more"},
        {"ann --data a.hdf5 --sketch-bits 0 --guarantee 0.9", "--guarantee needs --sketch-bits of 1 or more"},
        {"ann --data a.hdf5 --fit q.npy", "--fit needs --sketch-bits of 1 or more"},
        {"ann --data a.hdf5 --sketch-bits 0,1 --fit both:", "not 'both:'"},
        {"ann --data a.hdf5 --sketch-bits 0,1 --fit both:none", "not 'both:none'"},
        {"ann --data a.hdf5 --sketch-bits 0,1 --fit observation", "--fit observation needs --trace"},
        {"ann --data a.hdf5 --sketch-bits 0,1 --fit both:observation", "--fit observation needs --trace"},
        {"ann --data a.hdf5 --sketch-bits 1 --kind mdci --page-rows=8",
         "--page-rows is 8, with --sketch-bits at least 16"},
};

START_TEST(a_mistake_on_the_command_line_is_named)
{
        static const char *const commands[] = {"kmeans", "kv", "papers"};
        const char *arguments[48];
        char text[512], hint[64] = "--help'";
        size_t n = 0;
        snprintf(text, sizeof text, "%s", mistakes[_i].arguments);
        for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
                for (char *at = word; (at = strchr(at, '~')) != NULL;)
                        *at = ' ';
                arguments[n++] = word;
        }
        arguments[n] = NULL;
        for (size_t i = 0; n > 0 && i < sizeof commands / sizeof *commands; i++)
                if (strcmp(arguments[0], commands[i]) == 0)
                        snprintf(hint, sizeof hint, "; try 'dci-bench %s --help'", commands[i]);
        bench_result result = bench_run(arguments);
        bench_refused(result, 2, mistakes[_i].part);
        ck_assert_ptr_nonnull(strstr(result.err, hint));
        ck_assert_str_eq(result.out, "");
}
END_TEST

/* Words of the help of each command, separated by semicolons. */
static const struct {
        const char *command, *words;
} helps[] = {
        {"ann", "--num-comp-indices;--num-simp-indices;--seed;--prop-to-visit;--prop-to-retrieve;"
                "0.005,0.01,0.02,0.05,0.1,0.2,0.5,0.8,1;pdci;--base;--query;--truth;--data;--trace;"
                "--limit-base;--limit-queries;--metric;--k ;--kind;--rows;--mode;--threads;--repeat;"
                "--isa;--truth-check;--cache;--json;--help;exit codes;examples;.fvecs;.fbin;.hdf5;idx3"},
        {"kmeans", "--base ;--trace ;--limit ;--rows ;--clusters ;--metric ;--iter ;--tolerance ;--init ;"
                   "--init-file ;--seed ;--redo ;--seeds ;--centroid ;--capacity ;--segment-rows ;"
                   "--iter-global ;--page ;--slack ;--threads ;--isa ;--rounds ;--json ;--out-centroids ;"
                   "--subtract-mean ;share B n;exit codes"},
        {"kv", "--trace LIST;--synthetic N;--steps N;--preset LIST;--budget LIST;--kept common|paper;"
               "--sink N;--window N;--frozen-prompt;--key-bits LIST;--value-bits LIST;--learned LIST;--combine;"
               "--leaves NAME;--field-of-view N;--promotion-subseq X;--simple-indices N;--retrieve X;--extend "
               "N;--page-tokens N;--seed N;--updates LIST;--tau X;--retrieval-rate R;--anchor FOLDER;"
               "--every N;--judged-only;--threads N;--isa NAME;--json FILE;full;topk;streaming;snapkv;"
               "pagemean;quest;arkvale;lowbit;sketch;sketch+sums;sketch+lowbit;icecache;clusterkv;prkv;"
               "louiskv;retroinfer;freekv;sketch+groups;sketch+verify;pariskv"},
        {"ann", "--promotion-prob;--page-rows;--top-nodes;--cell-simp-indices;--field-of-view;mdci;"
                "--group ;--group-union;total s;groups/s"},
        {"growth", "--sizes;--dim;--latent;--noise;--queries;--recall;--field-of-view;--repeat"},
        {"latency", "--readers;--page ;--calls;--pause-us;--n ;--trace;--kind;--json"},
        {"papers", "--trace LIST;--figure LIST;--budget LIST;--preset LIST;--steps N;--every N;--tau LIST;"
                   "--stride LIST;--static-ratio;--period N;--window N;--page N;--sink N;--reach LIST;"
                   "--seed N;--cluster-rows LIST;--threads N;--page-tokens N;--isa NAME;--json FILE;"
                   "equation 3;equations 4 and 5;section V-C;section 3.2"},
        {"ann", "--sketch-bits;--rerank;--guarantee;--fit FILE;observation;both:;--pareto;1,1.5,2,3,4"},
        {"--help", "ann"},
};

START_TEST(help_names_every_option)
{
        const bool all = strcmp(helps[_i].command, "--help") == 0;
        bench_result result = all ? BENCH("--help") : BENCH(helps[_i].command, "--help");
        char words[1024];
        snprintf(words, sizeof words, "%s", helps[_i].words);
        ck_assert_int_eq(result.code, 0);
        ck_assert_str_eq(result.err, "");
        for (char *word = strtok(words, ";"); word != NULL; word = strtok(NULL, ";"))
                ck_assert_msg(strstr(result.out, word) != NULL, "%s: the help does not say '%s'", helps[_i].command,
                              word);
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{a_mistake_on_the_command_line_is_named, (int)(sizeof mistakes / sizeof *mistakes)},
                                    {help_names_every_option, (int)(sizeof helps / sizeof *helps)}};
        return bench_main("bench exit codes", scratch_open, scratch_close, tests, sizeof tests / sizeof *tests);
}
