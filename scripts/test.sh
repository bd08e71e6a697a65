#!/usr/bin/env bash
# test.sh [--quick | CTEST ARGS]: without arguments all that CI runs: quick lint, build, every test but those of the labels
# exhaustive (hours) and netns (it makes networks), then the address and undefined-behaviour sanitizers over the
# tests that need no LibTorch and the corpus of the fuzz targets (`TESSERA_PRESET=asan ./dev test -L fast`: over the fast
# tests with LibTorch too, half an hour); ctest's closing lines come once more at the end. --quick builds and runs
# what people run while they edit: the tests that need no LibTorch, and one short training. Other arguments go to ctest, and
# only the tests that they choose run. TESSERA_PRESET picks another build, which then runs alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
preset=${TESSERA_PRESET:-release}
targets=()
if [ "${1:-}" = --quick ]; then
  [ $# = 1 ] || die "test: --quick takes no further arguments"
  targets=(quick_tests)
  set -- -L quick
fi
if [ $# = 0 ]; then scripts/lint.sh --quick; else python3 scripts/check_includes.py && python3 scripts/check_tensors.py; fi
export TESSERA_SHARED_DATA=${TESSERA_SHARED_DATA:-$PWD/../shared/data}

# Tests write many small files and wait until they are safe: a drive takes minutes for that, memory none.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "$(df --output=avail /dev/shm | tail -n 1)" -gt $((4 << 20)) ]; then
  TMPDIR=$(mktemp -d /dev/shm/tessera-tests.XXXXXX)
  export TMPDIR
  chmod 1777 "$TMPDIR"  # some tests run programs as another user
  trap 'rm -rf "$TMPDIR"' EXIT
fi

# run_tests PRESET [CTEST ARGS]: ctest, then which tests were skipped and why (tests/testing/skip.h).
run_tests() {
  local build=build/$1 status=0
  shift
  export TESSERA_TEST_SKIPS=$PWD/$build/skipped_tests
  : >"$TESSERA_TEST_SKIPS"
  ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" "$@" | tee "$build/ctest.log" || status=$?
  sort -u "$TESSERA_TEST_SKIPS" | awk -F '\t' '
    { count[$1]++; if (count[$1] <= 4) names[$1] = names[$1] (count[$1] > 1 ? ", " : "") $2 }
    END {
      for (reason in count) {
        more = count[reason] > 4 ? ", ..." : ""
        printf "skipped %3d: %s (%s%s)\n", count[reason], reason, names[reason], more
      }
      if (NR == 0) print "no test was skipped"
    }'
  return $status
}

scripts/build.sh "$preset" "${targets[@]}"
grep -q '^TESSERA_WERROR:BOOL=ON' "build/$preset/CMakeCache.txt" || say "note: warnings are not errors in build/$preset"
failed=0
if [ $# = 0 ]; then set -- -LE 'exhaustive|netns'; is_whole=1; else is_whole=0; fi
run_tests "$preset" "$@" || failed=1
if [ $is_whole = 1 ] && [ "$preset" = release ]; then
  say "address sanitizer"
  scripts/build.sh asan quick_tests
  run_tests asan -L quick || failed=1
fi
# Each test says what its own kernels ran on (ctest -V); this is the best that they could run on.
say "this run's processor"
"build/$preset/tessera" doctor | sed -n -E '/^(processor|instruction sets|in use|float32 products|bfloat16 products) /p'
say "tests of build/$preset"
sed -n '/% tests passed/,$p' "build/$preset/ctest.log"
[ $failed = 0 ] || die "tests have failed"
