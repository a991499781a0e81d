# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# One list for the static and the shared library. A new file goes here and nowhere else.
set(dci_sources
    src/core/alloc.c
    src/core/blas.c
    src/core/context.c
    src/core/crc.c
    src/core/executor.c
    src/core/file.c
    src/core/file_io.c
    src/core/file_read.c
    src/core/npy.c
    src/core/pool.c
    src/core/rng.c
    src/core/status.c
    src/simd/codes.c
    src/simd/codes_across.c
    src/simd/codes_write.c
    src/simd/cpu.c
    src/simd/kernels.c
    src/simd/kernels_scalar.c
    src/simd/nearest.c
    src/simd/select.c
    src/simd/topk.c
    src/transform/cosine.c
    src/transform/mips.c
    src/transform/transform.c
    src/sketch/area.c
    src/sketch/coder.c
    src/sketch/eigen.c
    src/sketch/fit.c
    src/sketch/frames.c
    src/sketch/layout.c
    src/sketch/rotate.c
    src/sketch/sketch.c
    src/sketch/sketch_search.c
    src/cluster/kmeans.c
    src/cluster/kmeans_balance.c
    src/cluster/kmeans_check.c
    src/cluster/kmeans_config.c
    src/cluster/kmeans_divide.c
    src/cluster/kmeans_init.c
    src/cluster/kmeans_output.c
    src/cluster/kmeans_prepare.c
    src/cluster/kmeans_problem.c
    src/cluster/kmeans_run.c
    src/cluster/kmeans_step.c
    src/index/check.c
    src/index/check_codes.c
    src/index/check_rows.c
    src/index/check_tree.c
    src/index/chooser.c
    src/index/config.c
    src/index/filter.c
    src/index/flat.c
    src/index/flat_batch.c
    src/index/flat_batch_rows.c
    src/index/flat_batch_sample.c
    src/index/flat_batch_state.c
    src/index/group.c
    src/index/group_union.c
    src/index/idmap.c
    src/index/index.c
    src/index/insert.c
    src/index/mdci.c
    src/index/mdci_build.c
    src/index/mdci_search.c
    src/index/pages.c
    src/index/pdci.c
    src/index/pdci_search.c
    src/index/persist_check.c
    src/index/persist_codes.c
    src/index/persist_kinds.c
    src/index/persist_load.c
    src/index/persist_save.c
    src/index/persist_tree.c
    src/index/project.c
    src/index/range.c
    src/index/remove.c
    src/index/rows.c
    src/index/rows_codes.c
    src/index/search.c
    src/index/sketched.c
    src/index/sketched_fit.c
    src/index/tree.c
    src/index/tree_assign.c
    src/index/tree_build.c
    src/index/tree_edit.c
    src/index/tree_insert.c
    src/index/tree_near.c
    src/index/tree_plan.c
    src/index/tree_remove.c
    src/index/tree_route.c
    src/index/tree_search.c
    src/index/tune.c
    src/kv/attend.c
    src/kv/batch.c
    src/kv/calibrate.c
    src/kv/check.c
    src/kv/check_again.c
    src/kv/check_groups.c
    src/kv/check_tree.c
    src/kv/choose.c
    src/kv/choose_verify.c
    src/kv/config.c
    src/kv/elsewhere.c
    src/kv/form.c
    src/kv/group.c
    src/kv/group_cluster.c
    src/kv/group_restructured.c
    src/kv/group_segment.c
    src/kv/importance.c
    src/kv/info.c
    src/kv/kv.c
    src/kv/maintain.c
    src/kv/memory.c
    src/kv/persist_batches.c
    src/kv/persist_load.c
    src/kv/persist_save.c
    src/kv/plan.c
    src/kv/pool.c
    src/kv/presets.c
    src/kv/prompt.c
    src/kv/restructure.c
    src/kv/schedule.c
    src/kv/sequence.c
    src/kv/step.c
    src/kv/summary_codes.c
    src/kv/summary_keys.c
    src/kv/summary_pages.c
    src/kv/tail_drop.c
    src/kv/tail_lists.c
    src/kv/tail_lowbit.c
    src/kv/tail_sums.c
    src/kv/tree.c
    src/kv/tree_choose.c
    src/kv/tree_file.c
    src/kv/tree_form.c
    src/gpu/device_host.c
    src/gpu/frames.c
    src/gpu/gpu.c
    src/gpu/kv.c
    src/gpu/kv_choose.c
    src/gpu/kv_clusters.c
    src/gpu/kv_fetch.c
    src/gpu/kv_graph.c
    src/gpu/kv_learned.c
    src/gpu/kv_listed.c
    src/gpu/kv_memory.c
    src/gpu/kv_plan.c
    src/gpu/kv_planner.c
    src/gpu/kv_pool.c
    src/gpu/kv_prompt.c
    src/gpu/kv_resident.c
    src/gpu/kv_schedule.c
    src/gpu/kv_sequence.c
    src/gpu/kv_step.c
    src/gpu/kv_store.c
    src/gpu/kv_summaries.c
    src/gpu/kv_tails.c
    src/gpu/kv_turns.c
    src/gpu/ref_append.c
    src/gpu/ref_attend.c
    src/gpu/ref_choose.c
    src/gpu/ref_form.c
    src/gpu/ref_form_learned.c
    src/gpu/ref_gate.c
    src/gpu/ref_gather.c
    src/gpu/ref_kmeans.c
    src/gpu/ref_learned.c
    src/gpu/ref_resolve.c
    src/gpu/ref_score.c
    src/gpu/ref_tail.c
    src/gpu/ref_tail_sums.c)

# Kernels for GPUs, or what says that this build has none.
if(DCI_CUDA)
    list(APPEND dci_sources src/gpu/cuda_fits.c src/gpu/device_cuda.c src/gpu/pin.c)
    set(dci_cuda_sources
        src/gpu/cuda_append.cu
        src/gpu/cuda_attend.cu
        src/gpu/cuda_attend_bf16.cu
        src/gpu/cuda_attend_f16.cu
        src/gpu/cuda_choose.cu
        src/gpu/cuda_form.cu
        src/gpu/cuda_form_learned.cu
        src/gpu/cuda_gate.cu
        src/gpu/cuda_gather.cu
        src/gpu/cuda_kmeans.cu
        src/gpu/cuda_kmeans_assign.cu
        src/gpu/cuda_resolve.cu
        src/gpu/cuda_score.cu
        src/gpu/cuda_score_codes1.cu
        src/gpu/cuda_score_codes2.cu
        src/gpu/cuda_score_codes4.cu
        src/gpu/cuda_score_learned.cu
        src/gpu/cuda_score_learned_wide.cu
        src/gpu/cuda_score_rows.cu
        src/gpu/cuda_tail.cu
        src/gpu/cuda_tail_1.cu
        src/gpu/cuda_tail_2.cu
        src/gpu/cuda_tail_4.cu
        src/gpu/cuda_tail_sums.cu)
else()
    list(APPEND dci_sources src/gpu/stub.c)
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    list(APPEND dci_sources src/simd/kernels_avx2.c src/simd/kernels_avx512.c src/simd/kernels_amx.c
        src/simd/codes_avx2.c src/simd/codes_avx512.c src/simd/codes_vnni.c src/simd/looks_avx512.c src/simd/looks_vnni.c
        src/simd/codes_write_sse2.c src/simd/codes_write_avx2.c src/simd/codes_write_avx512.c)
    set_source_files_properties(src/simd/kernels_avx2.c src/simd/codes_avx2.c src/simd/codes_write_avx2.c PROPERTIES
        COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    set(dci_avx512_flags "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c;-mbmi;-mbmi2;-mpopcnt")
    set_source_files_properties(src/simd/kernels_avx512.c src/simd/codes_avx512.c src/simd/codes_write_avx512.c src/simd/looks_avx512.c PROPERTIES
        COMPILE_OPTIONS "${dci_avx512_flags}")
    set_source_files_properties(src/simd/codes_vnni.c src/simd/looks_vnni.c PROPERTIES COMPILE_OPTIONS "${dci_avx512_flags};-mavx512vnni")
    set_source_files_properties(src/simd/kernels_amx.c PROPERTIES COMPILE_OPTIONS
        "${dci_avx512_flags};-mavx512bf16;-mamx-tile;-mamx-bf16")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    list(APPEND dci_sources src/simd/kernels_neon.c src/simd/codes_neon.c src/simd/codes_dot.c src/simd/codes_write_neon.c)
    set_source_files_properties(src/simd/codes_dot.c PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
endif()
