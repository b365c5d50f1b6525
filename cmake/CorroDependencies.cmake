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
# TLS: OpenSSL inside of the program.
find_library(SSL_LIBRARY NAMES libssl.a REQUIRED)
find_library(CRYPTO_LIBRARY NAMES libcrypto.a REQUIRED)
find_path(SSL_INCLUDE_DIR openssl/ssl.h REQUIRED)
# Debian keeps this one header in the machine's own folder, which not every compiler looks into.
find_path(
  SSL_CONFIGURATION_DIR
  openssl/opensslconf.h
  PATHS /usr/include/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu
  REQUIRED
)
add_library(corro_tls INTERFACE)
target_link_libraries(
  corro_tls
  INTERFACE ${SSL_LIBRARY} ${CRYPTO_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS}
)
target_include_directories(corro_tls SYSTEM INTERFACE ${SSL_INCLUDE_DIR} ${SSL_CONFIGURATION_DIR})
# HTTP: Boost's headers; with TLS for the Kubernetes client.
find_path(BOOST_INCLUDE_DIR boost/beast/version.hpp REQUIRED)
add_library(corro_boost INTERFACE)
target_link_libraries(corro_boost INTERFACE Threads::Threads)
target_include_directories(corro_boost SYSTEM INTERFACE ${BOOST_INCLUDE_DIR})
add_library(corro_https INTERFACE)
target_link_libraries(corro_https INTERFACE corro_tls corro_boost)
if(CORRO_BUILD_TESTS)
  enable_testing()
  find_package(GTest 1.12 REQUIRED)
endif()
