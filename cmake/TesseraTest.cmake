# tessera_add_test(SOURCE [BASE] [ISA] [PLAIN] [EXHAUSTIVE] [NPROC n...] [LABELS l...] [TIMEOUT seconds])
#
# Builds tests/<folder>/<name>_test.cpp into one program and registers it with ctest as
# <folder>.<name>. BASE: the test needs no LibTorch and links tessera_base alone. NPROC: the test is
# run once for each rank count under mpirun, as <folder>.<name>.np<N>; without it, it runs as one
# process and no launcher. Multi-rank tests link tests/testing/mpi_main.cpp, where a launcher that did
# not give the promised number of ranks is a failure. ISA: the test is run once more on each kind of vector
# unit below the best one of the machine (in one process), as <folder>.<name>.<isa>; kinds that are not below
# it are skipped. PLAIN: the test is run once more without kernels, by the formulas that run on any device, as
# <folder>.<name>.plain with the label `plain_ops`; on two ranks where NPROC has two. EXHAUSTIVE: a test that runs a
# sample of its cases is registered once more for each rank count as <folder>.<name>.all.np<N>, with the label
# `exhaustive` and TESSERA_TEST_EXTENT=all; it takes an hour, and runs by `./dev test -L exhaustive` alone.
#
# The label `cuda` is for tests that need a GPU: one-process tests, which skip without one, and which are also linked into
# one program, cuda_tests, for machines that have nothing of ours (scripts/gpu_bundle.sh).
#
# The label `fast` is what `./dev test` runs under the address sanitizer: tests that have no other label (LABELS) and no
# longer TIMEOUT, on up to 3 ranks. The target fast_tests builds them.
add_custom_target(fast_tests)

# With TESSERA_TEST_OBJECTS, the folder of another build, the tests are not compiled again: what that build made of their
# sources is linked with this build's libraries. A sanitizer is then in the product and not in the tests, which costs
# nothing but the libraries' own compilation.
set(TESSERA_TEST_OBJECTS "" CACHE PATH "Build folder whose compiled tests are linked with this build's libraries")

# What the sanitizers' runtime libraries are told: an absurd size ends in std::bad_alloc, as without them.
set(test_environment "OMP_NUM_THREADS=1")
if(TESSERA_SANITIZE)
  list(APPEND test_environment
    "ASAN_OPTIONS=allocator_may_return_null=1"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()

function(tessera_add_test source)
  cmake_parse_arguments(ARG "BASE;ISA;PLAIN;EXHAUSTIVE" "TIMEOUT" "NPROC;LABELS" ${ARGN})
  get_filename_component(stem "${source}" NAME_WE)
  string(REGEX REPLACE "_test$" "" name "${stem}")
  file(RELATIVE_PATH folder_path "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "." folder "${folder_path}")
  string(REPLACE "." "_" target_folder "${folder}")
  set(target "test_${target_folder}_${name}")
  if(NOT ARG_LABELS AND NOT ARG_TIMEOUT)
    set(ARG_LABELS fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()

  set(objects "${TESSERA_TEST_OBJECTS}/tests/${folder_path}/CMakeFiles/${target}.dir/${source}.o")
  if(TESSERA_TEST_OBJECTS)
    add_executable(${target} "${objects}")
    set_source_files_properties("${objects}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  else()
    add_executable(${target} "${source}")
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  if(ARG_BASE)
    target_link_libraries(${target} PRIVATE tessera_base tessera_options GTest::gmock GTest::gtest)
    target_precompile_headers(${target} REUSE_FROM test_main)
  else()
    target_link_libraries(${target} PRIVATE tessera tessera_options GTest::gmock GTest::gtest)
    target_precompile_headers(${target} REUSE_FROM test_mpi_main)
  endif()

  # A test is compiled for longer than it runs.
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:-O1>")

  target_link_libraries(${target} PRIVATE test_paths)
  if("cuda" IN_LIST ARG_LABELS)
    set_property(GLOBAL APPEND PROPERTY TESSERA_CUDA_TESTS "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
  endif()
  if("fast" IN_LIST ARG_LABELS)
    add_dependencies(fast_tests ${target})
  endif()
  # Tests run side by side: threads that spin for each other would starve their neighbours.
  set(environment "${test_environment}")
  if(ARG_NPROC)
    target_link_libraries(${target} PRIVATE test_mpi_main)
    # OpenMPI keeps much to the end of a program.
    list(TRANSFORM environment REPLACE "^ASAN_OPTIONS=.*" "\\0:detect_leaks=0")
    list(APPEND environment "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_mpi_yield_when_idle=1;OMPI_MCA_btl_vader_single_copy_mechanism=none")
    set(launch ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -n)
    foreach(ranks IN LISTS ARG_NPROC)
      set(labels multi_rank ${ARG_LABELS})
      if(ranks GREATER 3)
        list(REMOVE_ITEM labels fast)
      endif()
      add_test(NAME ${folder}.${name}.np${ranks} COMMAND ${launch} ${ranks} $<TARGET_FILE:${target}>)
      set_tests_properties(${folder}.${name}.np${ranks} PROPERTIES
        TIMEOUT ${ARG_TIMEOUT} PROCESSORS 2 LABELS "${labels}"
        ENVIRONMENT "TESSERA_TEST_RANKS=${ranks};${environment}")
      if(ARG_EXHAUSTIVE)
        add_test(NAME ${folder}.${name}.all.np${ranks} COMMAND ${launch} ${ranks} $<TARGET_FILE:${target}>)
        set_tests_properties(${folder}.${name}.all.np${ranks} PROPERTIES
          TIMEOUT 7200 PROCESSORS 2 LABELS exhaustive
          ENVIRONMENT "TESSERA_TEST_RANKS=${ranks};TESSERA_TEST_EXTENT=all;${environment}")
      endif()
    endforeach()
    set(plain_ranks 1)
    if(2 IN_LIST ARG_NPROC)
      set(plain_ranks 2)
    endif()
    set(plain_command ${launch} ${plain_ranks} $<TARGET_FILE:${target}>)
    set(plain_environment "TESSERA_TEST_RANKS=${plain_ranks};${environment}")
    set(command ${launch} 1 $<TARGET_FILE:${target}>)
    list(APPEND environment TESSERA_TEST_RANKS=1)
  else()
    target_link_libraries(${target} PRIVATE test_main)
    set(command $<TARGET_FILE:${target}>)
    set(plain_command ${command})
    set(plain_environment "${environment}")
    add_test(NAME ${folder}.${name} COMMAND ${command})
    set_tests_properties(${folder}.${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
      ENVIRONMENT "${environment}" SKIP_RETURN_CODE 77)
  endif()
  if(ARG_PLAIN)
    add_test(NAME ${folder}.${name}.plain COMMAND ${plain_command})
    set_tests_properties(${folder}.${name}.plain PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS plain_ops
      ENVIRONMENT "${plain_environment};TESSERA_OPS=plain")
  endif()
  if(ARG_ISA)
    foreach(isa IN ITEMS baseline avx2 avx512)
      add_test(NAME ${folder}.${name}.${isa} COMMAND ${command})
      set_tests_properties(${folder}.${name}.${isa} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS isa
        ENVIRONMENT "${environment};TESSERA_ISA=${isa};TESSERA_TEST_ISA=${isa}" SKIP_RETURN_CODE 77)
    endforeach()
  endif()
endfunction()
