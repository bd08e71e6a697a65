# tessera_add_test(SOURCE [BASE | FAKE_DEVICE | FAKE_NCCL | NPROC n...] [ISA] [PLAIN] [EXHAUSTIVE] [ALONE] [APART]
#                  [LABELS l...] [TIMEOUT seconds] [PROCESSORS n] [LINKS library...] [STUBS stub...] [NEEDS target...] [SOURCES source...])
#
# Adds tests/<folder>/<file>_test.cpp to the program of its folder and kind, test_<folder>_<kind>. There is one program for
# each kind, so that a test file costs neither a link nor a process of its own:
#   base    BASE: the test needs no LibTorch and links tessera_base alone.
#   torch   one process, with LibTorch.
#   device  FAKE_DEVICE: one process that has the fake device (tests/testing/fake_device.h); FAKE_NCCL: and the stub of NCCL.
#   ranks   NPROC: run under mpirun, once for each rank count. A launcher that does not give the promised number of ranks
#           is a failure (tests/testing/mpi_main.cpp).
# ALONE makes a program of its own, test_<folder>_<file>, for a test that changes what its process cannot change back.
#
# ctest runs a program as few times as possible: once for all its files with the same labels, as <folder>.<kind>, with
# .np<N> behind it for a rank count. APART gives a file a run of its own, <folder>.<file>: for files that take minutes.
# A program takes names of files: `test_ops_torch attention rope` runs the tests of these two (tests/testing/choose_files.h).
#
# ISA: the file tests kernels, and is run once more on each kind of vector unit below the best one of the machine, in
# <run>.<isa>; kinds that are not below it are skipped. PLAIN: the file is run once more without kernels, by the formulas
# that run on any device, in <run>.plain with the label `plain_ops`; on two ranks where NPROC has two. EXHAUSTIVE: a file
# whose tests run a sample of their cases (tests/testing/extent.h) is run once more with all cases, as <folder>.<file>.all,
# with .np<N> behind it for each rank count, with the label `exhaustive` and TESSERA_TEST_EXTENT=all. That takes hours, and
# runs by `./dev test -L exhaustive` alone.
#
# The label `cuda` is for tests that need a GPU: one-process tests, which skip without one. They are linked into one
# program, cuda_tests, which also goes to machines that have nothing of ours (scripts/gpu_bundle.sh).
#
# The label `fast` is for tests that have no other label (LABELS), on up to 3 ranks: `TESSERA_PRESET=asan ./dev test -L fast`
# takes the sanitizers to them. The target fast_tests builds them. The label `quick` is for the fast tests that need no
# LibTorch: `./dev test --quick` runs them, and `./dev test` once more under the sanitizers. The target quick_tests builds
# them.
add_custom_target(fast_tests)
add_custom_target(quick_tests)

# With TESSERA_TEST_OBJECTS, the folder of another build, the tests are not compiled again: what that build made of their
# sources is linked with this build's libraries. A sanitizer is then in the product and not in the tests, which costs
# nothing but the libraries' own compilation.
set(TESSERA_TEST_OBJECTS "" CACHE PATH "Build folder whose compiled tests are linked with this build's libraries")

# Compiling a test takes longer than running it, so tests are not optimised.
set(tessera_test_options "$<$<CONFIG:Release>:-O0>")

# These options tell the sanitizers' runtime that an absurd size ends in std::bad_alloc, as it does in other builds.
set(tessera_test_environment "OMP_NUM_THREADS=1")
if(TESSERA_SANITIZE)
  list(APPEND tessera_test_environment
    "ASAN_OPTIONS=allocator_may_return_null=1"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()

# tessera_add_test_program(TARGET KIND): adds a program that has no sources; the rows of its folder add them.
function(tessera_add_test_program target kind)
  if(TESSERA_TEST_OBJECTS)
    set(list "${TESSERA_TEST_OBJECTS}/tests/${target}.objects")
    file(STRINGS "${list}" objects)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${list}")
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    add_executable(${target} ${objects})
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  else()
    add_executable(${target})
    file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/tests/${target}.objects"
      CONTENT "$<JOIN:$<TARGET_OBJECTS:${target}>,\n>\n" TARGET ${target})
    set_property(DIRECTORY APPEND PROPERTY TESSERA_TEST_PROGRAMS ${target})
    set(precompiled test_mpi_main)
    if(kind STREQUAL "base")
      set(precompiled test_main)
    endif()
    target_precompile_headers(${target} REUSE_FROM ${precompiled})
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE tessera_options GTest::gmock GTest::gtest test_paths)
  target_compile_options(${target} PRIVATE ${tessera_test_options})
  if(kind STREQUAL "base")
    target_link_libraries(${target} PRIVATE tessera_base test_main)
    return()
  endif()
  target_link_libraries(${target} PRIVATE tessera)
  if(kind STREQUAL "ranks")
    target_link_libraries(${target} PRIVATE test_mpi_main)
  else()
    target_link_libraries(${target} PRIVATE test_main)
  endif()
  if(kind STREQUAL "device")
    target_link_libraries(${target} PRIVATE test_fake_device)
  endif()
endfunction()

# tessera_add_test_run(NAME FILE PROGRAM LABELS [TIMEOUT seconds] [PROCESSORS n] [RANKS n] [ENVIRONMENT e...]): has the run
# NAME of PROGRAM also take the tests of FILE. The first call decides everything else; the longest time limit holds.
function(tessera_add_test_run name file program labels)
  cmake_parse_arguments(ARG "" "RANKS;TIMEOUT;PROCESSORS" "ENVIRONMENT" ${ARGN})
  get_property(runs DIRECTORY PROPERTY TESSERA_TEST_RUNS)
  if(NOT name IN_LIST runs)
    set_property(DIRECTORY APPEND PROPERTY TESSERA_TEST_RUNS ${name})
    foreach(part IN ITEMS program labels)
      set_property(DIRECTORY PROPERTY TESSERA_TEST_RUN_${part}_${name} "${${part}}")
    endforeach()
    set_property(DIRECTORY PROPERTY TESSERA_TEST_RUN_ranks_${name} "${ARG_RANKS}")
    set_property(DIRECTORY PROPERTY TESSERA_TEST_RUN_processors_${name} "${ARG_PROCESSORS}")
    set_property(DIRECTORY PROPERTY TESSERA_TEST_RUN_environment_${name} "${ARG_ENVIRONMENT}")
  endif()
  set_property(DIRECTORY APPEND PROPERTY TESSERA_TEST_RUN_files_${name} ${file})
  set_property(DIRECTORY APPEND PROPERTY TESSERA_TEST_RUN_timeouts_${name} ${ARG_TIMEOUT})
endfunction()

# tessera_finish_tests(): ends a folder. Groups the sources of its programs (TesseraUnity.cmake) and adds its runs to
# ctest.
function(tessera_finish_tests)
  get_property(programs DIRECTORY PROPERTY TESSERA_TEST_PROGRAMS)
  foreach(program IN LISTS programs)
    tessera_group_sources(${program})
  endforeach()
  get_property(runs DIRECTORY PROPERTY TESSERA_TEST_RUNS)
  foreach(run IN LISTS runs)
    foreach(part IN ITEMS program labels ranks processors environment files timeouts)
      get_property(${part} DIRECTORY PROPERTY TESSERA_TEST_RUN_${part}_${run})
    endforeach()
    set(command $<TARGET_FILE:${program}> ${files})
    list(APPEND environment ${tessera_test_environment})
    if(NOT processors)
      set(processors 1)
    endif()
    if(ranks)
      list(PREPEND command ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -n ${ranks})
      # OpenMPI keeps much memory to the end of a program. Ranks that spin for each other would starve their neighbours.
      list(TRANSFORM environment REPLACE "^ASAN_OPTIONS=.*" "\\0:detect_leaks=0")
      list(APPEND environment "TESSERA_TEST_RANKS=${ranks}" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none)
      if(ranks GREATER 1)
        set(processors 2)
      endif()
    endif()
    # Long runs of one process come first, so that none is left to run alone at the end; runs of many ranks, which take all
    # processors, come last.
    set(cost 0)
    if(processors EQUAL 1)
      set(cost 1)
      if(labels MATCHES "integration|slow" OR program MATCHES "_device$")
        set(cost 2)
      endif()
    endif()
    list(SORT timeouts COMPARE NATURAL ORDER DESCENDING)
    list(GET timeouts 0 timeout)
    add_test(NAME ${run} COMMAND ${command})
    set_tests_properties(${run} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" PROCESSORS ${processors} COST ${cost}
      ENVIRONMENT "${environment}" SKIP_RETURN_CODE 77)
    foreach(label IN ITEMS fast quick)
      if(label IN_LIST labels)
        add_dependencies(${label}_tests ${program})
      endif()
    endforeach()
  endforeach()
endfunction()

function(tessera_add_test source)
  cmake_parse_arguments(ARG "BASE;FAKE_DEVICE;FAKE_NCCL;ISA;PLAIN;EXHAUSTIVE;ALONE;APART" "TIMEOUT;PROCESSORS"
    "NPROC;LABELS;LINKS;STUBS;NEEDS;SOURCES" ${ARGN})
  get_filename_component(file "${source}" NAME_WE)
  string(REGEX REPLACE "_test$" "" file "${file}")
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "." folder "${folder}")
  if("cuda" IN_LIST ARG_LABELS)
    list(TRANSFORM ARG_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    set_property(GLOBAL APPEND PROPERTY TESSERA_CUDA_TESTS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" ${ARG_SOURCES})
    return()
  endif()

  set(kind torch)
  if(ARG_BASE)
    set(kind base)
  elseif(ARG_FAKE_DEVICE OR ARG_FAKE_NCCL)
    set(kind device)
  elseif(ARG_NPROC)
    set(kind ranks)
  endif()
  string(REPLACE "." "_" target "test_${folder}_${kind}")
  if(ARG_ALONE)
    string(REPLACE "." "_" target "test_${folder}_${file}")
  endif()
  if(NOT TARGET ${target})
    tessera_add_test_program(${target} ${kind})
  endif()
  get_property(has_end DIRECTORY PROPERTY TESSERA_TESTS_HAVE_END)
  if(NOT has_end)
    set_property(DIRECTORY PROPERTY TESSERA_TESTS_HAVE_END TRUE)
    cmake_language(DEFER CALL tessera_finish_tests)
  endif()
  if(NOT TESSERA_TEST_OBJECTS)
    target_sources(${target} PRIVATE "${source}" ${ARG_SOURCES})
  endif()
  if(ARG_FAKE_NCCL)
    list(APPEND ARG_STUBS stub_nccl)
  endif()
  target_link_libraries(${target} PRIVATE ${ARG_LINKS})
  tessera_use_stubs(${target} ${ARG_STUBS})
  if(ARG_NEEDS)
    add_dependencies(${target} ${ARG_NEEDS})
  endif()

  # The file takes part in these runs.
  set(labels ${ARG_LABELS})
  if(NOT labels)
    set(labels fast)
    if(ARG_BASE)
      list(APPEND labels quick)
    endif()
  endif()
  set(name "${folder}.${kind}")
  if(ARG_ALONE OR ARG_APART)
    set(name "${folder}.${file}")
  elseif(ARG_LABELS)
    list(JOIN ARG_LABELS "_" suffix)
    string(APPEND name ".${suffix}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  set(ranks_of_variants "")
  if(ARG_NPROC)
    foreach(ranks IN LISTS ARG_NPROC)
      set(labels_of_ranks multi_rank ${labels})
      if(ranks GREATER 3)
        list(REMOVE_ITEM labels_of_ranks fast)
      endif()
      tessera_add_test_run(${name}.np${ranks} ${file} ${target} "${labels_of_ranks}" RANKS ${ranks} TIMEOUT ${ARG_TIMEOUT})
      if(ARG_EXHAUSTIVE)
        tessera_add_test_run(${folder}.${file}.all.np${ranks} ${file} ${target} exhaustive RANKS ${ranks} TIMEOUT 7200
          ENVIRONMENT TESSERA_TEST_EXTENT=all)
      endif()
    endforeach()
    set(ranks_of_variants RANKS 1)
    if(2 IN_LIST ARG_NPROC)
      set(ranks_of_variants RANKS 2)
    endif()
  else()
    tessera_add_test_run(${name} ${file} ${target} "${labels}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS})
    if(ARG_EXHAUSTIVE)
      tessera_add_test_run(${folder}.${file}.all ${file} ${target} exhaustive TIMEOUT 7200 PROCESSORS ${ARG_PROCESSORS}
        ENVIRONMENT TESSERA_TEST_EXTENT=all)
    endif()
  endif()
  if(ARG_PLAIN)
    tessera_add_test_run(${name}.plain ${file} ${target} plain_ops ${ranks_of_variants} TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT TESSERA_OPS=plain)
  endif()
  if(ARG_ISA)
    foreach(isa IN ITEMS baseline avx2 avx512)
      tessera_add_test_run(${name}.${isa} ${file} ${target} isa TIMEOUT ${ARG_TIMEOUT}
        ENVIRONMENT TESSERA_ISA=${isa} TESSERA_TEST_ISA=${isa})
    endforeach()
  endif()
endfunction()
