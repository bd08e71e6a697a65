# `cmake --install build/release --prefix P` gives a package that find_package(tessera) finds, and the program.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")

install(TARGETS tessera_base tessera tessera_libtorch EXPORT tessera-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT tessera-targets NAMESPACE tessera:: DESTINATION "${package_dir}")
install(TARGETS tessera_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
set_target_properties(tessera_cli PROPERTIES INSTALL_RPATH "${TESSERA_LIBTORCH_DIR}/lib")
if(TESSERA_HAS_LIBARROW)
  install(TARGETS tessera_tables LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(tessera_tables PROPERTIES INSTALL_RPATH "${TESSERA_LIBARROW_DIR}/lib")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tessera" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE PATTERN "templates" EXCLUDE PATTERN "precompiled*.h" EXCLUDE)

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tessera-config.cmake.in"
  "${PROJECT_BINARY_DIR}/tessera-config.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tessera-config-version.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tessera-config.cmake" "${PROJECT_BINARY_DIR}/tessera-config-version.cmake"
  DESTINATION "${package_dir}")
