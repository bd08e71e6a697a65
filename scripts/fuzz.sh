#!/usr/bin/env bash
# fuzz.sh [SECONDS]: builds the fuzz targets with libFuzzer (clang) and has each look for new inputs for SECONDS, 5 unless
# told. What is found is kept below build/fuzz for the next run; an input that ends a target is named at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
seconds=${1:-5}
[[ $seconds =~ ^[0-9]+$ ]] || die "fuzz: got '$seconds', need a number of seconds for each format"
scripts/build.sh fuzz fuzz_targets
failed=()
for corpus in tests/fuzz/corpus/*; do
  format=$(basename "$corpus")
  [ -x "build/fuzz/tests/fuzz_$format" ] || continue # needs LibTorch (tests/fuzz/CMakeLists.txt)
  found=build/fuzz/found/$format
  mkdir -p "$found"
  say "fuzzing $format for $seconds s"
  "build/fuzz/tests/fuzz_$format" -seed=1 -max_total_time="$seconds" -timeout=120 -rss_limit_mb=3000 \
    -artifact_prefix="$found-" -print_final_stats=1 "$found" "$corpus" >"$found.log" 2>&1 || failed+=("$format")
  grep -E '^(stat::number_of_executed_units|SUMMARY)' "$found.log" || true
done
[ ${#failed[@]} = 0 ] || die "these formats have an input that ends the program, see build/fuzz/found/*.log: ${failed[*]}"
