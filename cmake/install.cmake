# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# Headers, libraries, the CMake package (find_package(dci)) and dci.pc. All of them find their prefix from where they lie, so an
# installed tree may be moved. What a static consumer must link besides is listed by name: a consumer of the shared library
# then needs neither OpenBLAS nor OpenMP to be installed for development.
set(dci_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dci)

install(TARGETS ${dci_targets} EXPORT dciTargets)
install(DIRECTORY include/dci TYPE INCLUDE)
install(FILES LICENSE TYPE DOC)
install(EXPORT dciTargets NAMESPACE dci:: DESTINATION ${dci_cmake_dir})

configure_package_config_file(cmake/dciConfig.cmake.in ${PROJECT_BINARY_DIR}/dciConfig.cmake
    INSTALL_DESTINATION ${dci_cmake_dir} NO_SET_AND_CHECK_MACRO)
# Until 1.0 every minor version may break: 0.1.3 serves who asks for 0.1, 0.2.0 does not.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dciConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dciConfig.cmake ${PROJECT_BINARY_DIR}/dciConfigVersion.cmake
    DESTINATION ${dci_cmake_dir})

# An absolute CMAKE_INSTALL_LIBDIR or INCLUDEDIR replaces the prefix, as cmake_path(APPEND) does.
set(dci_pc_libdir "\${prefix}")
set(dci_pc_includedir "\${prefix}")
cmake_path(APPEND dci_pc_libdir ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND dci_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
file(RELATIVE_PATH dci_pc_up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
list(TRANSFORM dci_static_libraries PREPEND "-l" REGEX "^[^/]" OUTPUT_VARIABLE dci_pc_libs_private)
list(JOIN dci_pc_libs_private " " dci_pc_libs_private)
if(NOT TARGET dci_shared)
    # Nothing but the archive is installed: everyone is a static consumer.
    set(dci_pc_libs_public " ${dci_pc_libs_private}")
    set(dci_pc_libs_private "")
endif()
configure_file(cmake/dci.pc.in ${PROJECT_BINARY_DIR}/dci.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dci.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
