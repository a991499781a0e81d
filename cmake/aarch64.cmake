# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# Toolchain: compiles for 64-bit Arm Linux on another machine and runs the tests with qemu's user-mode emulator. The compiler
# and its C library are Debian's cross packages; scripts/arm64.sh puts the other libraries into DCI_ARM64_ROOT.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
# Only for CUDA's kernels on the CPU (tests/emulated): this machine's own compiler would be found in its place.
find_program(DCI_ARM64_CXX aarch64-linux-gnu-g++)
if(DCI_ARM64_CXX)
    set(CMAKE_CXX_COMPILER ${DCI_ARM64_CXX})
else()
    set(DCI_EMULATED OFF CACHE BOOL "there is no C++ compiler for arm64")
endif()

set(DCI_ARM64_ROOT "" CACHE PATH "folder with Debian's arm64 libraries (cmake/aarch64.cmake)")
# CMake reads this file again for each of its trial programs.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DCI_ARM64_ROOT)
set(dci_arm64_libraries ${DCI_ARM64_ROOT}/usr/lib/aarch64-linux-gnu)
set(dci_arm64_openblas ${dci_arm64_libraries}/openblas-pthread)

# The folders are the system's own only inside of DCI_ARM64_ROOT: pkg-config must name them.
set(ENV{PKG_CONFIG_LIBDIR} ${dci_arm64_libraries}/pkgconfig:${dci_arm64_openblas}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${DCI_ARM64_ROOT})
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_CFLAGS} 1)
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_LIBS} 1)

# Libraries that libraries need: first the linker, then the loader looks for them.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${dci_arm64_libraries})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu
    -E LD_LIBRARY_PATH=${dci_arm64_openblas}:${dci_arm64_libraries})
