# What `cmake --install` copies. Four components:
#   development       the C ABI for find_package(corro), and `corro`, which starts the ranks: `make demo` builds them
#   development-more  the programs that `corro` becomes: planner, operator and what looks at checkpoints
#   python            what a wheel holds beside python/corro: the engine and `corro`, which start and run ranks
#   python-more       what the whole wheel holds beside those: planner, operator and checkpoints
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

# In a wheel `corro` goes to NAME.data/scripts, and so to bin/ as it is, with no Python in front; the programs that it
# becomes go to NAME.data/data, and so to libexec/ beside bin/.
set(
  corro_subprograms
  corro_plan_program
  corro_operator_program
  corro_checkpoint_program
  corro_coordinator_program
  corro_jobs_program
  corro_server_program
)
install(TARGETS corro_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
install(
  TARGETS ${corro_subprograms}
  RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/corro COMPONENT development-more
)

if(CORRO_BUILD_PYTHON)
  install(TARGETS corro_native corro LIBRARY DESTINATION corro COMPONENT python)
  install(
    TARGETS
      corro_planner
      corro_checkpoint_extension
      corro_tables_extension
      corro_tensorflow
      corro_jax
    LIBRARY DESTINATION corro COMPONENT python-more
  )
  if(DEFINED SKBUILD_SCRIPTS_DIR)
    install(TARGETS corro_program RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
    install(
      TARGETS ${corro_subprograms}
      RUNTIME DESTINATION ${SKBUILD_DATA_DIR}/libexec/corro COMPONENT python-more
    )
  endif()
endif()
