# Warnings, optimisation levels, sanitizers, ccache.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g0")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -D_GLIBCXX_ASSERTIONS")

add_library(tessera_options INTERFACE)
# -fPIC everywhere, programs too: they share one precompiled header with the library.
target_compile_options(tessera_options INTERFACE -fPIC -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -fno-semantic-interposition)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Of types in unnamed namespaces, which it takes for a header's in a source that another one includes.
  target_compile_options(tessera_options INTERFACE -Wno-subobject-linkage)
endif()
if(TESSERA_WERROR)
  target_compile_options(tessera_options INTERFACE -Werror)
endif()
if(TESSERA_SANITIZE)
  # What a sanitizer finds ends the program: a line among others would pass for success.
  target_compile_options(tessera_options INTERFACE
    -fsanitize=${TESSERA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
if(TESSERA_FUZZ)
  target_compile_options(tessera_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
