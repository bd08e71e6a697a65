# This file finds LibTorch as `./dev setup` fetches it, the CPU part of the wheel, and makes the target
# tessera::libtorch.
if(NOT TESSERA_LIBTORCH_DIR)
  if(DEFINED ENV{TESSERA_LIBTORCH})
    set(TESSERA_LIBTORCH_DIR "$ENV{TESSERA_LIBTORCH}")
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(TESSERA_LIBTORCH_DIR "$ENV{XDG_CACHE_HOME}/tessera/libtorch-2.11.0")
  else()
    set(TESSERA_LIBTORCH_DIR "$ENV{HOME}/.cache/tessera/libtorch-2.11.0")
  endif()
endif()
set(TESSERA_LIBTORCH_DIR "${TESSERA_LIBTORCH_DIR}" CACHE PATH "Folder with LibTorch's include/ and lib/")
if(NOT EXISTS "${TESSERA_LIBTORCH_DIR}/include/ATen/ATen.h")
  message(FATAL_ERROR "LibTorch is not at ${TESSERA_LIBTORCH_DIR}: run ./dev setup, or set TESSERA_LIBTORCH_DIR")
endif()

add_library(tessera_libtorch INTERFACE)
add_library(tessera::libtorch ALIAS tessera_libtorch)
set_target_properties(tessera_libtorch PROPERTIES EXPORT_NAME libtorch)
target_include_directories(tessera_libtorch SYSTEM INTERFACE
  "$<BUILD_INTERFACE:${TESSERA_LIBTORCH_DIR}/include>"
  "$<BUILD_INTERFACE:${TESSERA_LIBTORCH_DIR}/include/torch/csrc/api/include>")
target_link_libraries(tessera_libtorch INTERFACE
  "$<BUILD_INTERFACE:${TESSERA_LIBTORCH_DIR}/lib/libtorch_cpu.so>"
  "$<BUILD_INTERFACE:${TESSERA_LIBTORCH_DIR}/lib/libc10.so>")
# CMake gives what it links a run path to these libraries, and changes it on installation.
target_link_options(tessera_libtorch INTERFACE "$<BUILD_INTERFACE:-Wl,--allow-shlib-undefined>")
