# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
if(DCI_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS C)
endif()
# What a program that links libdci.a links besides, by name, as the installed packages state it.
set(dci_static_libraries ${OPENBLAS_LIBRARIES})
if(DCI_OPENMP)
    list(APPEND dci_static_libraries ${OpenMP_C_LIB_NAMES})
endif()
list(APPEND dci_static_libraries pthread m)
list(REMOVE_DUPLICATES dci_static_libraries)

# Both libraries are made of the same objects: position-independent, and with all but the public functions hidden.
add_library(dci_objects OBJECT ${dci_sources})
target_include_directories(dci_objects PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(dci_objects PRIVATE dci_options PkgConfig::OPENBLAS Threads::Threads)
if(DCI_OPENMP)
    target_link_libraries(dci_objects PRIVATE OpenMP::OpenMP_C)
    target_compile_definitions(dci_objects PRIVATE DCI_HAVE_OPENMP=1)
endif()

set(dci_targets)
function(dci_add_library target type)
    add_library(${target} ${type} $<TARGET_OBJECTS:dci_objects>)
    target_include_directories(${target}
        PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:dci_options> $<BUILD_INTERFACE:PkgConfig::OPENBLAS>
        $<BUILD_INTERFACE:Threads::Threads> $<BUILD_INTERFACE:m>)
    if(DCI_OPENMP)
        target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:OpenMP::OpenMP_C>)
    endif()
    set_target_properties(${target} PROPERTIES OUTPUT_NAME dci)
    set(dci_targets ${dci_targets} ${target} PARENT_SCOPE)
endfunction()

if(DCI_STATIC AND NOT DCI_PYTHON_WHEEL)
    dci_add_library(dci_static STATIC)
    foreach(library IN LISTS dci_static_libraries)
        target_link_libraries(dci_static INTERFACE $<INSTALL_INTERFACE:${library}>)
    endforeach()
    add_library(dci::dci_static ALIAS dci_static)
endif()
if(DCI_SHARED OR DCI_PYTHON_WHEEL)
    dci_add_library(dci_shared SHARED)
    set_target_properties(dci_shared PROPERTIES EXPORT_NAME dci)
    # The ABI may change with every minor version until 1.0, so the SONAME carries it. A wheel cannot hold the links that go
    # with it and loads the library by path.
    if(NOT DCI_PYTHON_WHEEL)
        set_target_properties(dci_shared PROPERTIES VERSION ${PROJECT_VERSION}
            SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    endif()
    # A source missing from the list must fail here, not when a program loads the library.
    if(NOT DCI_SANITIZE)
        target_link_options(dci_shared PRIVATE -Wl,-z,defs)
    endif()
    add_library(dci::dci ALIAS dci_shared)
elseif(DCI_STATIC)
    add_library(dci::dci ALIAS dci_static)
endif()
