# This file finds nvcc and builds Tessera's own CUDA kernels (tessera/ops/cuda), which are a library of their own that
# the program opens while it runs. It uses its own commands instead of CMake's CUDA language: nothing else is compiled
# with nvcc, and an nvcc that does not work must not end the configuration. A build with a sanitizer has no such
# library.
set(TESSERA_CUDA AUTO CACHE STRING "Build the CUDA kernels: ON, OFF, or AUTO where there is a nvcc that works")
set(TESSERA_NVCC_DIR "" CACHE PATH "Folder with bin/nvcc, where the PATH and /usr/local/cuda have none")
set(TESSERA_HAS_CUDA_KERNELS OFF)

# There is code for each kind of device, and code that later kinds compile. Products and sums fuse only if the sources
# say so.
set(TESSERA_NVCC_FLAGS -std=c++17 -O3 -fmad=false "-Xcompiler=-fPIC,-fvisibility=hidden" -Xptxas=-v -cudart=static
  -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_90,code=compute_90)

function(tessera_find_nvcc)
  find_program(TESSERA_NVCC nvcc
    HINTS ENV TESSERA_NVCC_DIR ENV CUDAToolkit_ROOT ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
    PATHS /usr/local/cuda "${TESSERA_NVCC_DIR}" DOC "NVIDIA's compiler")
  if(NOT TESSERA_NVCC)
    set(problem "there is no nvcc (scripts/fetch_nvcc.sh fetches it)" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(root "${TESSERA_NVCC}" REALPATH)
  get_filename_component(root "${root}" DIRECTORY)
  get_filename_component(root "${root}" DIRECTORY)
  set(command "${TESSERA_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" ${TESSERA_NVCC_FLAGS} "-L${root}/lib64" "-L${root}/lib")
  set(TESSERA_NVCC_COMMAND ${command} PARENT_SCOPE)
  # A trial shows if nvcc knows the devices, takes the compiler, and has all its parts.
  set(trial "${PROJECT_BINARY_DIR}/cuda/trial")
  if(NOT TESSERA_NVCC_TRIAL STREQUAL "${command}")
    file(WRITE "${trial}.cu" "__global__ void trial(float* x) { *x = 1; }\n")
    execute_process(COMMAND ${command} -shared "${trial}.cu" -o "${trial}.so"
      RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(NOT result EQUAL 0)
      file(WRITE "${trial}.log" "${said}")
      set(problem "${TESSERA_NVCC} does not compile a kernel: ${trial}.log" PARENT_SCOPE)
      return()
    endif()
    set(TESSERA_NVCC_TRIAL "${command}" CACHE INTERNAL "The command that has compiled a kernel")
  endif()
  set(problem "" PARENT_SCOPE)
endfunction()

if(NOT TESSERA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TESSERA_CUDA is '${TESSERA_CUDA}', need AUTO, ON or OFF")
elseif(TESSERA_CUDA STREQUAL "OFF" OR TESSERA_SANITIZE)
  message(STATUS "without CUDA kernels: TESSERA_CUDA is ${TESSERA_CUDA}, TESSERA_SANITIZE is '${TESSERA_SANITIZE}'")
else()
  tessera_find_nvcc()
  if(NOT problem)
    set(TESSERA_HAS_CUDA_KERNELS ON)
  elseif(TESSERA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TESSERA_CUDA is ON, but ${problem}")
  else()
    message(STATUS "without CUDA kernels: ${problem}")
  endif()
endif()

# tessera_add_cuda_library(NAME SOURCE...): builds lib<NAME>.so beside the program; it exports what exports.map names.
# The compiler's report on registers is kept in cuda/<source>.log.
function(tessera_add_cuda_library name)
  set(folder "${PROJECT_BINARY_DIR}/cuda")
  set(objects)
  foreach(source IN LISTS ARGN)
    set(object "${folder}/${source}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND sh -c "\"$@\" >\"$0.log\" 2>&1 || { cat \"$0.log\"; exit 1; }" "${folder}/${source}"
        ${TESSERA_NVCC_COMMAND} "-I${PROJECT_SOURCE_DIR}" -MD -MF "${object}.d" -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
        -o "${object}"
      DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" DEPFILE "${object}.d"
      COMMENT "Compiling CUDA kernels ${source}" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set(library "${PROJECT_BINARY_DIR}/lib${name}.so")
  set(map "${CMAKE_CURRENT_SOURCE_DIR}/exports.map")
  add_custom_command(OUTPUT "${library}"
    COMMAND ${TESSERA_NVCC_COMMAND} -shared ${objects} "-Xlinker=--version-script=${map}" -Xlinker=-s -o "${library}"
    DEPENDS ${objects} "${map}" COMMENT "Linking lib${name}.so" VERBATIM)
  add_custom_target(${name} ALL DEPENDS "${library}")
  # The program alone may have been built, which runs without the library.
  install(FILES "${library}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" OPTIONAL)
endfunction()
