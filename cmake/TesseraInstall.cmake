# `cmake --install build/release --prefix P` gives a package that find_package(tessera) finds, and the program.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")

# tessera_files is all that a package, a wheel or a machine with a GPU takes. The program runs without the CUDA kernels.
add_custom_target(tessera_files)
add_dependencies(tessera_files tessera_cli)
if(TARGET tessera_cuda)
  add_dependencies(tessera_files tessera_cuda)
endif()

# tessera_install_libraries(FOLDER RUN_PATH FILE...): installs the libraries FILE, which are below FOLDER, for the program, if set-up
# has fetched them: they lie in a user's cache then, which others cannot read and anybody may clear. RUN_PATH then names
# where they are as seen from the program, else FOLDER: what the user has named stays where it is.
set(own_libraries "${CMAKE_INSTALL_LIBDIR}/tessera")
function(tessera_install_libraries folder run_path)
  if(NOT EXISTS "${folder}/.complete")
    set(${run_path} "${folder}/lib" PARENT_SCOPE)
    return()
  endif()
  list(TRANSFORM ARGN PREPEND "${folder}/lib/")
  file(GLOB files ${ARGN})
  install(FILES ${files} DESTINATION "${own_libraries}")
  set(${run_path} "$ORIGIN/../${own_libraries}" PARENT_SCOPE)
endfunction()
tessera_install_libraries("${TESSERA_LIBTORCH_DIR}" libtorch_run_path
  libtorch_cpu.so libc10.so libgomp.so.* libcudart.so.* libcupti.so.*)
if(EXISTS "${TESSERA_LIBTORCH_DIR}/.complete-cuda")
  # LibTorch's CUDA part is too large for copies.
  list(APPEND libtorch_run_path "${TESSERA_LIBTORCH_DIR}/lib")
endif()

install(TARGETS tessera_base tessera tessera_libtorch EXPORT tessera-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT tessera-targets NAMESPACE tessera:: DESTINATION "${package_dir}")
install(TARGETS tessera_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
set_target_properties(tessera_cli PROPERTIES INSTALL_RPATH "${libtorch_run_path}")
if(TESSERA_HAS_LIBARROW)
  install(TARGETS tessera_tables LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  tessera_install_libraries("${TESSERA_LIBARROW_DIR}" libarrow_run_path libarrow.so.* libparquet.so.*)
  set_target_properties(tessera_tables PROPERTIES INSTALL_RPATH "${libarrow_run_path}")
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
