# This file sets warnings, optimisation levels, sanitizers, ccache and the linker.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

# Some forty programs are linked with LibTorch's symbols, which takes the system's linker seconds for each.
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g0")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -D_GLIBCXX_ASSERTIONS")

add_library(tessera_options INTERFACE)
# Programs take -fPIC too, because they share one precompiled header with the library.
target_compile_options(tessera_options INTERFACE -fPIC -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -fno-semantic-interposition)
if(TESSERA_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC warns of types in unnamed namespaces: it takes a source that another one includes for a header.
  target_compile_options(tessera_options INTERFACE -Wno-subobject-linkage)
endif()
if(TESSERA_WERROR)
  target_compile_options(tessera_options INTERFACE -Werror)
endif()
# Each of these checks stands before every access to memory, and together they double the time that a build with
# sanitizers takes; address finds most of what they would.
set(TESSERA_SANITIZE_LESS "null,alignment,vptr,object-size,nonnull-attribute,returns-nonnull-attribute,pointer-overflow"
  CACHE STRING "Checks of the sanitizer undefined that are left out")
if(TESSERA_SANITIZE)
  # A finding of a sanitizer ends the program: a line among others would pass for success.
  target_compile_options(tessera_options INTERFACE
    -fsanitize=${TESSERA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(TESSERA_SANITIZE MATCHES undefined AND TESSERA_SANITIZE_LESS)
    target_compile_options(tessera_options INTERFACE -fno-sanitize=${TESSERA_SANITIZE_LESS})
  endif()
  target_link_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
if(TESSERA_FUZZ)
  target_compile_options(tessera_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
