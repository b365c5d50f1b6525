# Nobody measures a test's own code, and optimizing gtest's macros takes half of the time.
set(CORRO_TEST_OPTIONS $<$<CONFIG:Release,RelWithDebInfo>:-O0>)

# corro_precompile(TARGET KIND): the headers that nearly every file of the kind (code or test) reads are parsed
# once. Not in the preset of clang-tidy, where each file has to show that it includes what it needs.
function(corro_precompile target kind)
  if(NOT CORRO_PCH)
    return()
  endif()
  set(owner corro_pch_${kind})
  if(NOT TARGET ${owner})
    file(WRITE ${PROJECT_BINARY_DIR}/${owner}.cc "")
    add_library(${owner} OBJECT ${PROJECT_BINARY_DIR}/${owner}.cc)
    target_link_libraries(${owner} PRIVATE corro_flags corro_fmt Threads::Threads)
    set(
      headers
      <algorithm>
      <chrono>
      <functional>
      <map>
      <memory>
      <string>
      <vector>
      <fmt/format.h>
    )
    if(kind STREQUAL test)
      target_link_libraries(${owner} PRIVATE GTest::gmock GTest::gtest_main)
      target_compile_options(${owner} PRIVATE ${CORRO_TEST_OPTIONS})
      list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
    endif()
    target_precompile_headers(${owner} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# corro_cold(TARGET): runs once, at a job's start or end; gcc needs half as long again for -O3.
function(corro_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# corro_optimize(SOURCE...): optimised in debug builds too, for what tests run thousands of times; a test, in every build.
function(corro_optimize)
  foreach(source IN LISTS ARGN)
    set(options $<$<CONFIG:Debug>:-O1>)
    if(source MATCHES "_test\\.cc$")
      set(options -O1)
    endif()
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${options})
    set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  endforeach()
endfunction()

# corro_floor_target(VARIABLE FLOOR): the target of a floor; that of collective/board is corro_collective_board.
function(corro_floor_target variable floor)
  string(REPLACE "/" "_" name ${floor})
  set(${variable} corro_${name} PARENT_SCOPE)
endfunction()

# corro_library(FLOOR SOURCES ... USES ... [LINKS ...]): one folder, one static target, one floor.
# USES names the floors below it (cmake/floors.txt says which are allowed), LINKS libraries that are not ours.
function(corro_library floor)
  cmake_parse_arguments(arg "" "" "SOURCES;USES;LINKS" ${ARGN})
  corro_floor_target(target ${floor})
  add_library(${target} STATIC ${arg_SOURCES})
  target_link_libraries(${target} PUBLIC corro_flags)
  corro_use_floors(${target} PUBLIC ${arg_USES})
  target_link_libraries(${target} PUBLIC ${arg_LINKS})
  corro_precompile(${target} code)
endfunction()

# corro_use_floors(TARGET PUBLIC|PRIVATE FLOOR...): links the floors' libraries.
function(corro_use_floors target scope)
  foreach(floor IN LISTS ARGN)
    corro_floor_target(library ${floor})
    target_link_libraries(${target} ${scope} ${library})
  endforeach()
endfunction()

# corro_shared_library(NAME SOURCES ... USES ... [LINKS ...]): the one shared object, a client's corro::NAME.
# It exports what cmake/exports.map names and nothing else: not even the symbols of what it is linked with.
function(corro_shared_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES;LINKS" ${ARGN})
  add_library(${name} SHARED ${arg_SOURCES})
  add_library(corro::${name} ALIAS ${name})
  target_link_libraries(${name} PRIVATE corro_flags ${arg_LINKS})
  corro_use_floors(${name} PRIVATE ${arg_USES})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cpp/include>)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(${name} PRIVATE -Wl,--version-script=${exports})
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exports})
  if(NOT CORRO_SANITIZE)
    # A missing symbol is an error of this build, not of whoever loads the library.
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

# corro_executable(TARGET NAME FOLDER/PROGRAM SOURCES ... USES ... [STATIC]): a program for users, at
# build/PRESET/FOLDER/PROGRAM. It runs on machines without a C++ compiler's libraries. STATIC: the C library is inside
# as well, for images that hold nothing else.
function(corro_executable target)
  cmake_parse_arguments(arg "STATIC" "NAME" "SOURCES;USES" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE corro_flags)
  corro_use_floors(${target} PRIVATE ${arg_USES})
  corro_cold(${target})
  corro_precompile(${target} code)
  cmake_path(GET arg_NAME PARENT_PATH folder)
  cmake_path(GET arg_NAME FILENAME program)
  set_target_properties(
    ${target}
    PROPERTIES OUTPUT_NAME ${program} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder}
  )
  if(CORRO_SANITIZE) # Sanitizers need their own libraries.
    return()
  endif()
  if(arg_STATIC)
    # The linker warns of libraries that a lookup of names or a plug-in would need. In pods nothing looks one up; what
    # `corro operator --kubeconfig` needs, files and DNS, is in the C library itself since glibc 2.34.
    target_link_options(${target} PRIVATE -static -Wl,--no-warnings $<$<CONFIG:Release>:-s>)
  else()
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# corro_test(NAME SOURCES ... USES ... [LINKS ...] [LABELS ...] [TIMEOUT seconds]): one gtest program of a
# folder, found by ctest. Label `faults`: kills or starves processes, runs alone; `slow`: only in `make test-all`.
# REPLACES_NEW: counts allocations with an operator new of its own, which sanitizers replace themselves.
# PURE: neither the test nor what it tests starts a thread, so the thread sanitizer has nothing to see.
function(corro_test name)
  if(NOT CORRO_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "REPLACES_NEW;PURE" "TIMEOUT" "SOURCES;USES;LINKS;LABELS" ${ARGN})
  if(arg_REPLACES_NEW AND CORRO_SANITIZE)
    message(STATUS "${name}: left out, since sanitizers replace operator new themselves")
    return()
  endif()
  if(arg_PURE AND CORRO_SANITIZE MATCHES "thread")
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  corro_use_floors(${name} PRIVATE ${arg_USES})
  target_compile_options(${name} PRIVATE ${CORRO_TEST_OPTIONS})
  target_link_libraries(${name} PRIVATE corro_flags GTest::gmock GTest::gtest_main ${arg_LINKS})
  corro_precompile(${name} test)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  # It ends what hangs; a slow machine does not reach it.
  set(limit 600)
  if(arg_TIMEOUT GREATER limit)
    set(limit ${arg_TIMEOUT})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # The longest first, so that no core is idle at the end.
  set_tests_properties(
    ${name}
    PROPERTIES TIMEOUT ${limit} COST ${arg_TIMEOUT} LABELS "${arg_LABELS}"
  )
  if("faults" IN_LIST arg_LABELS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# corro_fuzz(NAME SOURCES ... USES ... [SEEDS FILE]): one libFuzzer target, run by `make fuzz`. docs/wire.md
# names it beside the decoder it attacks. SEEDS lists inputs to start from: a name and hexadecimal digits a line.
function(corro_fuzz name)
  if(NOT CORRO_BUILD_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "" "SEEDS" "SOURCES;USES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  corro_use_floors(${name} PRIVATE ${arg_USES})
  target_link_libraries(${name} PRIVATE corro_flags)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  if(arg_SEEDS)
    cmake_path(ABSOLUTE_PATH arg_SEEDS)
  endif()
  set_property(GLOBAL APPEND PROPERTY corro_fuzz_names ${name})
  set_property(
    GLOBAL
    APPEND_STRING
    PROPERTY corro_fuzz_list "${name} $<TARGET_FILE:${name}> ${arg_SEEDS}\n"
  )
endfunction()

# Called once, after every folder: the target that builds all fuzzers, and the list that tools/run_fuzz.py reads.
function(corro_finish_fuzz)
  if(NOT CORRO_BUILD_FUZZ)
    return()
  endif()
  get_property(names GLOBAL PROPERTY corro_fuzz_names)
  get_property(list GLOBAL PROPERTY corro_fuzz_list)
  add_custom_target(corro_fuzzers DEPENDS ${names})
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/fuzz_targets.txt CONTENT "${list}")
endfunction()
