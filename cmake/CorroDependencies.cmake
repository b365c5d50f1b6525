# Every third-party dependency of the native code, all from packaged versions (packages.txt).
find_package(Threads REQUIRED)
find_package(fmt 9.1 REQUIRED)
# Its headers alone: base/fmt.cc compiles the rest of it, once.
add_library(corro_fmt INTERFACE)
target_include_directories(
  corro_fmt
  SYSTEM
  INTERFACE $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>
)
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_library(SODIUM_LIBRARY NAMES libsodium.a REQUIRED)
find_path(SODIUM_INCLUDE_DIR sodium.h REQUIRED)
add_library(corro_sodium INTERFACE)
target_link_libraries(corro_sodium INTERFACE ${SODIUM_LIBRARY})
target_include_directories(corro_sodium SYSTEM INTERFACE ${SODIUM_INCLUDE_DIR})
find_library(YAML_LIBRARY NAMES libyaml.a REQUIRED)
find_path(YAML_INCLUDE_DIR yaml.h REQUIRED)
add_library(corro_yaml INTERFACE)
target_link_libraries(corro_yaml INTERFACE ${YAML_LIBRARY})
target_include_directories(corro_yaml SYSTEM INTERFACE ${YAML_INCLUDE_DIR})
if(CORRO_BUILD_TESTS)
  enable_testing()
  find_package(GTest 1.12 REQUIRED)
endif()
