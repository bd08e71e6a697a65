#!/usr/bin/env bash
# Builds everything and runs every test through ctest; its closing lines are ctest's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
preset=${TESSERA_PRESET:-release}
python3 scripts/check_includes.py
scripts/build.sh "$preset"
# Each test says what its own kernels ran on (ctest -V); this is the best that the others are compared with.
"build/$preset/tessera" doctor | sed -n -E '/^(processor|instruction sets|used of them|float32 products|bfloat16 products) /p'
export TESSERA_SHARED_DATA=${TESSERA_SHARED_DATA:-$PWD/../shared/data}
exec ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" "$@"
