#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures when needed and builds under a lock, so that two
# shells that share a checkout do not run two builds in one folder. TESSERA_UNITY=ON makes a folder that is configured for
# the first time compile the library in large pieces: half the time from nothing, more after an edit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
preset=${1:-release}
[ $# -gt 0 ] && shift
export CCACHE_DIR=${CCACHE_DIR:-$CACHE_DIR/ccache} CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime CCACHE_MAXSIZE=8G
# The preset asan links the tests that release has compiled (TESSERA_TEST_OBJECTS): they are built first.
[ "$preset" != asan ] || scripts/build.sh release "$@"
mkdir -p "build/$preset"
exec 8>"build/$preset/.lock"
flock 8
if [ ! -f "build/$preset/build.ninja" ] || [ CMakePresets.json -nt "build/$preset/CMakeCache.txt" ]; then
  # Warnings are errors only with CI's compiler: the warnings of another one are no reason to refuse its user a build.
  werror=OFF
  [ "$preset" = release ] && [ "$("${CXX:-c++}" -dumpversion)" = "$CI_COMPILER" ] && werror=ON
  cmake --preset "$preset" ${TESSERA_UNITY:+-D TESSERA_UNITY="$TESSERA_UNITY"} -DTESSERA_LIBTORCH_DIR="$LIBTORCH_DIR" -DTESSERA_LIBARROW_DIR="$LIBARROW_DIR" -DTESSERA_NVCC_DIR="$NVCC_DIR" -DTESSERA_WERROR=$werror >"build/$preset/configure.log" 2>&1 ||
    { tail -n 40 "build/$preset/configure.log" >&2; die "configuring failed: build/$preset/configure.log"; }
fi
cmake --build "build/$preset" ${TESSERA_JOBS:+-j "$TESSERA_JOBS"} ${@:+--target "$@"}
