# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# One interface target: warnings, feature macros and sanitizers for all of the project's own targets.
add_library(dci_options INTERFACE)
target_compile_options(dci_options INTERFACE
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wpointer-arith -Wwrite-strings
    -Wformat -Wformat-security
    # Results must not depend on what the compiler fuses; kernels call fused multiply-add by name.
    -ffp-contract=off)
target_compile_definitions(dci_options INTERFACE _POSIX_C_SOURCE=200809L)
if(DCI_WERROR)
    target_compile_options(dci_options INTERFACE -Werror)
endif()
# What the compiler and the linker add against memory errors that nobody has found yet; SECURITY.md says which. Sanitizers have better ones of
# their own, and gcc's address sanitizer with guarded stacks misplaces vectors of 64 bytes.
if(DCI_HARDENING AND NOT DCI_SANITIZE)
    include(CheckCCompilerFlag)
    include(CheckLinkerFlag)
    foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection -mbranch-protection=standard)
        string(MAKE_C_IDENTIFIER "DCI_HAS${flag}" has)
        check_c_compiler_flag("-Werror ${flag}" ${has})
        if(${has})
            target_compile_options(dci_options INTERFACE "$<$<COMPILE_LANGUAGE:C>:${flag}>")
        endif()
    endforeach()
    # It needs optimisation.
    target_compile_options(dci_options INTERFACE
        "$<$<AND:$<COMPILE_LANGUAGE:C>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    foreach(flag -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
        string(MAKE_C_IDENTIFIER "DCI_HAS${flag}" has)
        check_linker_flag(C "${flag}" ${has})
        if(${has})
            target_link_options(dci_options INTERFACE "${flag}")
        endif()
    endforeach()
endif()
if(DCI_SANITIZE)
    target_compile_options(dci_options INTERFACE -fsanitize=${DCI_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(dci_options INTERFACE -fsanitize=${DCI_SANITIZE})
    if(DCI_SANITIZE MATCHES "undefined")
        target_compile_options(dci_options INTERFACE -fno-sanitize-recover=undefined)
    endif()
endif()
# Edges are counted everywhere; only the targets themselves are linked with libFuzzer and its main.
if(DCI_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "DCI_FUZZ is ON and the compiler is ${CMAKE_C_COMPILER_ID}: libFuzzer needs clang")
    endif()
    target_compile_options(dci_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
# Regions of the source as clang's front end sees them are counted before anything is optimised, so that the counts do not depend on it.
if(DCI_COVERAGE)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "DCI_COVERAGE is ON and the compiler is ${CMAKE_C_COMPILER_ID}: scripts/coverage reads clang's counts")
    endif()
    target_compile_options(dci_options INTERFACE $<$<COMPILE_LANGUAGE:C>:-fprofile-instr-generate> $<$<COMPILE_LANGUAGE:C>:-fcoverage-mapping>)
    target_link_options(dci_options INTERFACE -fprofile-instr-generate)
endif()
