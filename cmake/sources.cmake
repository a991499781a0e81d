# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# One list for the static and the shared library. A new file goes here and nowhere else.
set(dci_sources
    src/core/alloc.c
    src/core/blas.c
    src/core/context.c
    src/core/crc.c
    src/core/executor.c
    src/core/fields.c
    src/core/file.c
    src/core/file_io.c
    src/core/file_read.c
    src/core/npy.c
    src/core/pool.c
    src/core/rng.c
    src/core/status.c
    src/simd/cpu.c
    src/simd/kernels.c
    src/simd/kernels_scalar.c
    src/simd/nearest.c
    src/simd/select.c
    src/simd/topk.c
    src/simd/integers/integers.c
    src/simd/integers/integers_scalar.c
    src/simd/codes/codes.c
    src/simd/codes/encode.c
    src/simd/codes/transpose.c
    src/transform/cosine.c
    src/transform/mips.c
    src/transform/transform.c
    src/sketch/code_block.c
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
    src/index/access.c
    src/index/auto.c
    src/index/batch.c
    src/index/calibrate.c
    src/index/candidates.c
    src/index/config.c
    src/index/create.c
    src/index/effort.c
    src/index/filter.c
    src/index/group.c
    src/index/idmap.c
    src/index/insert.c
    src/index/kinds.c
    src/index/queries.c
    src/index/range.c
    src/index/rebuild.c
    src/index/remove.c
    src/index/rows.c
    src/index/search.c
    src/index/tune.c
    src/index/view.c
    src/index/check/check.c
    src/index/check/codes.c
    src/index/check/rows.c
    src/index/check/tree.c
    src/index/codes/fit.c
    src/index/codes/look.c
    src/index/codes/plan.c
    src/index/codes/renew.c
    src/index/codes/rows.c
    src/index/codes/search.c
    src/index/flat/batch.c
    src/index/flat/batch_integers.c
    src/index/flat/batch_rows.c
    src/index/flat/batch_state.c
    src/index/flat/flat.c
    src/index/mdci/mdci.c
    src/index/mdci/pages.c
    src/index/mdci/search.c
    src/index/metadata.c
    src/index/pdci/directions.c
    src/index/pdci/pdci.c
    src/index/pdci/project.c
    src/index/pdci/search.c
    src/index/persist/auto.c
    src/index/persist/codes.c
    src/index/persist/effort.c
    src/index/persist/kinds.c
    src/index/persist/load.c
    src/index/persist/save.c
    src/index/persist/sections.c
    src/index/persist/tree.c
    src/index/tree/assign.c
    src/index/tree/build.c
    src/index/tree/edit.c
    src/index/tree/insert.c
    src/index/tree/near.c
    src/index/tree/plan.c
    src/index/tree/remove.c
    src/index/tree/replace.c
    src/index/tree/route.c
    src/index/tree/search.c
    src/index/tree/tree.c
    src/gpu/gpu.c
    src/gpu/args/transforms.c
    src/gpu/host/append.c
    src/gpu/host/attend.c
    src/gpu/host/device.c
    src/gpu/host/encode.c
    src/gpu/host/encode_learned.c
    src/gpu/host/gate.c
    src/gpu/host/gather.c
    src/gpu/host/kmeans.c
    src/gpu/host/learned.c
    src/gpu/host/resolve.c
    src/gpu/host/score.c
    src/gpu/host/select.c
    src/gpu/host/tail.c
    src/gpu/host/tail_sums.c
    src/kv/attend.c
    src/kv/cache.c
    src/kv/calibrate.c
    src/kv/chunk.c
    src/kv/clustering.c
    src/kv/clusters.c
    src/kv/config.c
    src/kv/geometry.c
    src/kv/info.c
    src/kv/lookup.c
    src/kv/maintain.c
    src/kv/memory.c
    src/kv/plan.c
    src/kv/plan_scratch.c
    src/kv/pool.c
    src/kv/presets.c
    src/kv/prompt.c
    src/kv/queries.c
    src/kv/sequence.c
    src/kv/step.c
    src/kv/summaries.c
    src/kv/transform.c
    src/kv/worker.c
    src/kv/check/cache.c
    src/kv/check/groups.c
    src/kv/check/marks.c
    src/kv/check/recompute.c
    src/kv/check/tree.c
    src/kv/persist/clusters.c
    src/kv/persist/load.c
    src/kv/persist/save.c
    src/kv/stages/group.c
    src/kv/stages/group_cluster.c
    src/kv/stages/group_reordered.c
    src/kv/stages/group_segment.c
    src/kv/stages/importance.c
    src/kv/stages/rank.c
    src/kv/stages/reorder.c
    src/kv/stages/schedule.c
    src/kv/stages/select.c
    src/kv/stages/select_verify.c
    src/kv/stages/summary_codes.c
    src/kv/stages/summary_keys.c
    src/kv/stages/summary_pages.c
    src/kv/stages/tail_drop.c
    src/kv/stages/tail_lists.c
    src/kv/stages/tail_lowbit.c
    src/kv/stages/tail_sums.c
    src/kv/tree/build.c
    src/kv/tree/cut.c
    src/kv/tree/file.c
    src/kv/tree/search.c
    src/kv/tree/tree.c
    src/offload/boundaries.c
    src/offload/cache.c
    src/offload/chunk_store.c
    src/offload/clusters.c
    src/offload/fetch_baselines.c
    src/offload/graph.c
    src/offload/layout.c
    src/offload/learned_codes.c
    src/offload/plan.c
    src/offload/planner.c
    src/offload/pool.c
    src/offload/preselect.c
    src/offload/prompt.c
    src/offload/prompt_kmeans.c
    src/offload/resident.c
    src/offload/schedule.c
    src/offload/select.c
    src/offload/sequence.c
    src/offload/state.c
    src/offload/step.c
    src/offload/summaries.c
    src/offload/tail.c
    src/offload/upload.c)

# Kernels for GPUs (tests/emulated compiles them for the CPU), or what says that this build has none.
set(dci_cuda_sources
    src/gpu/cuda/append.cu
    src/gpu/cuda/gather.cu
    src/gpu/cuda/resolve.cu
    src/gpu/cuda/attend/attend.cu
    src/gpu/cuda/attend/attend_bf16.cu
    src/gpu/cuda/attend/attend_f16.cu
    src/gpu/cuda/encode/encode.cu
    src/gpu/cuda/encode/encode_learned.cu
    src/gpu/cuda/kmeans/kmeans.cu
    src/gpu/cuda/kmeans/kmeans_assign.cu
    src/gpu/cuda/score/score.cu
    src/gpu/cuda/score/score_codes1.cu
    src/gpu/cuda/score/score_codes2.cu
    src/gpu/cuda/score/score_codes4.cu
    src/gpu/cuda/score/score_learned.cu
    src/gpu/cuda/score/score_learned_wide.cu
    src/gpu/cuda/score/score_rows.cu
    src/gpu/cuda/select/gate.cu
    src/gpu/cuda/select/select.cu
    src/gpu/cuda/tail/tail.cu
    src/gpu/cuda/tail/tail_1.cu
    src/gpu/cuda/tail/tail_2.cu
    src/gpu/cuda/tail/tail_4.cu
    src/gpu/cuda/tail/tail_sums.cu)
if(DCI_CUDA)
    list(APPEND dci_sources src/gpu/cuda/device.c src/gpu/cuda/limits.c src/gpu/cuda/pin.c)
else()
    list(APPEND dci_sources src/gpu/cuda/stub.c)
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    list(APPEND dci_sources src/simd/kernels_avx2.c src/simd/kernels_avx512.c src/simd/kernels_amx.c
        src/simd/codes/dot_avx2.c src/simd/codes/dot_avx512.c src/simd/codes/dot_vnni.c src/simd/softmax/softmax_avx512.c src/simd/softmax/softmax_vnni.c
        src/simd/codes/encode_sse2.c src/simd/codes/encode_avx2.c src/simd/codes/encode_avx512.c
        src/simd/integers/integers_avx2.c src/simd/integers/integers_avx512.c src/simd/integers/tiles_vnni.c src/simd/integers/tiles_amx.c)
    set_source_files_properties(src/simd/kernels_avx2.c src/simd/codes/dot_avx2.c src/simd/codes/encode_avx2.c src/simd/integers/integers_avx2.c PROPERTIES
        COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    set(dci_avx512_flags "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c;-mbmi;-mbmi2;-mpopcnt")
    set_source_files_properties(src/simd/kernels_avx512.c src/simd/codes/dot_avx512.c src/simd/codes/encode_avx512.c src/simd/softmax/softmax_avx512.c src/simd/integers/integers_avx512.c PROPERTIES
        COMPILE_OPTIONS "${dci_avx512_flags}")
    set_source_files_properties(src/simd/codes/dot_vnni.c src/simd/softmax/softmax_vnni.c src/simd/integers/tiles_vnni.c PROPERTIES COMPILE_OPTIONS "${dci_avx512_flags};-mavx512vnni")
    set_source_files_properties(src/simd/kernels_amx.c PROPERTIES COMPILE_OPTIONS
        "${dci_avx512_flags};-mavx512bf16;-mamx-tile;-mamx-bf16")
    set_source_files_properties(src/simd/integers/tiles_amx.c PROPERTIES COMPILE_OPTIONS "${dci_avx512_flags};-mamx-tile;-mamx-int8")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    list(APPEND dci_sources src/simd/kernels_neon.c src/simd/codes/dot_neon.c src/simd/codes/dot_sdot.c src/simd/codes/encode_neon.c
        src/simd/integers/integers_neon.c src/simd/integers/tiles_sdot.c)
    set_source_files_properties(src/simd/codes/dot_sdot.c src/simd/integers/tiles_sdot.c PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
endif()
