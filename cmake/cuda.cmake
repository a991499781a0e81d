# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# DCI_CUDA: machine code for compute capability 8.0 (and the 8.x after it) and 9.0, and PTX of 9.0, which a driver compiles for
# later ones. The runtime is linked statically and loads the driver by itself, so the library also loads where there is none.
#
# nvcc is the one that is named (CMAKE_CUDA_COMPILER, CUDACXX), or of CUDA_HOME, of CUDA_PATH, on the PATH, or in /usr/local/cuda.
if(NOT CMAKE_CUDA_COMPILER AND "$ENV{CUDACXX}" STREQUAL "")
    find_program(DCI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(NOT DCI_NVCC)
        message(FATAL_ERROR "DCI_CUDA is ON, but there is no nvcc in CUDA_HOME, on the PATH or in /usr/local/cuda: install CUDA "
            "12.0 or later or pip's packages of it (CONTRIBUTING.md), or name the compiler with CUDACXX")
    endif()
    set(CMAKE_CUDA_COMPILER ${DCI_NVCC} CACHE FILEPATH "nvcc")
endif()
# pip's packages have lib, where nvcc looks into lib64: CMake's own trials link by the environment.
set(dci_cuda_compiler ${CMAKE_CUDA_COMPILER})
if(NOT dci_cuda_compiler)
    set(dci_cuda_compiler $ENV{CUDACXX})
endif()
get_filename_component(dci_cuda_root "${dci_cuda_compiler}" REALPATH)
cmake_path(GET dci_cuda_root PARENT_PATH dci_cuda_root)
cmake_path(GET dci_cuda_root PARENT_PATH dci_cuda_root)
if(EXISTS ${dci_cuda_root}/lib/libcudart_static.a)
    set(ENV{LIBRARY_PATH} "${dci_cuda_root}/lib:$ENV{LIBRARY_PATH}")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
    message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} was found, expected 12.0 or later")
endif()

# The runtime that came with the compiler. Not find_package(CUDAToolkit): it asks for libraries that pip's packages do not have.
find_path(DCI_CUDART_INCLUDE cuda_runtime_api.h
    HINTS ${dci_cuda_root}/include ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} REQUIRED)
find_library(DCI_CUDART_STATIC cudart_static
    HINTS ${dci_cuda_root}/lib64 ${dci_cuda_root}/lib ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} REQUIRED)
add_library(dci_cudart STATIC IMPORTED GLOBAL)
set_target_properties(dci_cudart PROPERTIES IMPORTED_LOCATION ${DCI_CUDART_STATIC} IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES ${DCI_CUDART_INCLUDE} INTERFACE_LINK_LIBRARIES "dl;rt;pthread")

# Neither exceptions nor type information nor guards of statics: the objects need nothing of a C++ library, and none is linked. The runtime
# is linked by its path (dci_cudart).
set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
add_library(dci_cuda_objects OBJECT ${dci_cuda_sources} src/gpu/cuda/probe.cu)
list(JOIN CMAKE_CUDA_ARCHITECTURES ", " dci_cuda_architectures)
set_source_files_properties(src/gpu/cuda/device.c PROPERTIES
    COMPILE_DEFINITIONS "DCI_CUDA_ARCHITECTURES=\"${dci_cuda_architectures}\"")
target_include_directories(dci_cuda_objects PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_options(dci_cuda_objects PRIVATE -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics)
# A quarter of the size on the disk; drivers for CUDA 13 can read it.
if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
    target_compile_options(dci_cuda_objects PRIVATE --compress-mode=size)
endif()
# Products of whole groups of warps are in no later machine's code (ptx.cuh).
if(CMAKE_CUDA_ARCHITECTURES MATCHES "(^|;)90(-real)?(;|$)")
    set_source_files_properties(src/gpu/cuda/kmeans/kmeans_wide.cu PROPERTIES
        COMPILE_OPTIONS "--generate-code=arch=compute_90a,code=[sm_90a]")
endif()
if(DCI_WERROR)
    target_compile_options(dci_cuda_objects PRIVATE -Werror=all-warnings)
endif()
# What a static consumer links for it, by name.
set(dci_cuda_libraries cudart_static dl rt)
