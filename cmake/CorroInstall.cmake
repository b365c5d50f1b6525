# What `cmake --install` copies. Two components:
#   development  the C ABI for find_package(corro), and the program
#   python       what a wheel holds beside python/corro (scikit-build-core picks this one)
include(CMakePackageConfigHelpers)

if(TARGET corro)
  install(
    TARGETS corro
    EXPORT corro
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  )
  install(
    DIRECTORY ${PROJECT_SOURCE_DIR}/cpp/include/corro
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT development
    FILES_MATCHING
    PATTERN "*.h"
  )
  set(corro_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/corro)
  install(
    EXPORT corro
    FILE corro-targets.cmake
    NAMESPACE corro::
    DESTINATION ${corro_package_dir}
    COMPONENT development
  )
  configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/corro-config.cmake.in
    ${PROJECT_BINARY_DIR}/corro-config.cmake
    INSTALL_DESTINATION ${corro_package_dir}
  )
  write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/corro-config-version.cmake
    COMPATIBILITY SameMinorVersion
  )
  install(
    FILES ${PROJECT_BINARY_DIR}/corro-config.cmake ${PROJECT_BINARY_DIR}/corro-config-version.cmake
    DESTINATION ${corro_package_dir}
    COMPONENT development
  )
endif()

if(TARGET corro_program)
  install(TARGETS corro_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
endif()

if(CORRO_BUILD_PYTHON)
  install(TARGETS corro_native corro_planner corro LIBRARY DESTINATION corro COMPONENT python)
  # In a wheel the program goes to NAME.data/scripts, and so to bin/ as it is, with no Python in front.
  if(DEFINED SKBUILD_SCRIPTS_DIR)
    install(TARGETS corro_program RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
  endif()
endif()
