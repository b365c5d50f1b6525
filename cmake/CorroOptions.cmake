# The build's options. Configuring needs neither network nor hardware.
option(CORRO_BUILD_TESTS "Build the C++ tests" ON)
option(CORRO_BUILD_BENCH "Build the benchmarks and the peers' drivers" OFF)
option(CORRO_BUILD_FUZZ "Build the fuzz targets (clang)" OFF)
option(CORRO_BUILD_PYTHON "Build the Python extension" OFF)
option(CORRO_PCH "Parse common headers once" ON)
option(CORRO_WERROR "Treat warnings as errors (set by the presets)" OFF)
set(
  CORRO_SANITIZE
  ""
  CACHE STRING
  "Sanitizers for every target: '', 'address,undefined' or 'thread'"
)

find_program(CORRO_CCACHE ccache)
if(CORRO_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for to cache files that use precompiled headers; with paths
  # below the base, two checkouts compile a file once.
  set(
    ccache_settings
    CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
    CCACHE_NOHASHDIR=1
  )
  set(CMAKE_C_COMPILER_LAUNCHER ${CORRO_CCACHE})
  set(
    CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND}
    -E
    env
    ${ccache_settings}
    ${CORRO_CCACHE}
  )
endif()

add_library(corro_flags INTERFACE)
target_compile_features(corro_flags INTERFACE cxx_std_20)
target_compile_options(
  corro_flags
  INTERFACE
    -Wall
    -Wextra
    -Wconversion
    -Wshadow
    -Wnon-virtual-dtor
    -fPIC
    -fvisibility=hidden
    -fvisibility-inlines-hidden
    -ffp-contract=off
)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 sees overlaps and overflows in std::string itself when it optimizes (its bugs 105329 and 105651).
  target_compile_options(
    corro_flags
    INTERFACE "$<$<CONFIG:Release>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>"
  )
endif()
# libstdc++ 12's own sort uses what it declares deprecated, and clang blames the instantiation.
target_compile_options(
  corro_flags
  INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(corro_flags INTERFACE -Wthread-safety -Werror=thread-safety)
endif()
if(CORRO_WERROR)
  target_compile_options(corro_flags INTERFACE -Werror)
endif()
if(CORRO_SANITIZE)
  target_compile_options(
    corro_flags
    INTERFACE -fsanitize=${CORRO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
  )
  target_link_options(corro_flags INTERFACE -fsanitize=${CORRO_SANITIZE})
endif()
if(CORRO_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "CORRO_BUILD_FUZZ needs clang's libFuzzer: cmake --preset asan")
  endif()
  # Coverage counters in every floor; only corro_fuzz() targets link the fuzzer itself.
  target_compile_options(corro_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(corro_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_include_directories(
  corro_flags
  INTERFACE ${PROJECT_SOURCE_DIR}/cpp/src ${PROJECT_SOURCE_DIR}/cpp/include
)

# Says in one place what this build will be.
function(corro_print_summary)
  message(STATUS "corro ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER}")
  foreach(name TESTS BENCH FUZZ PYTHON)
    message(STATUS "  CORRO_BUILD_${name}: ${CORRO_BUILD_${name}}")
  endforeach()
  message(STATUS "  CORRO_SANITIZE: ${CORRO_SANITIZE}")
endfunction()
