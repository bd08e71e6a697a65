#!/usr/bin/env bash
# gpu_check.sh [--device cpu] [--folder OUT] [--minutes N] [--only NAME,...]: holds Tessera on this machine's GPU to what
# it promises, in one run of at most 9 minutes, and prints one table (benchmarks/gpu/check.py).
# gpu_check.sh peers [--part 0.5B|1.5B|7B] [--turns N] ...: compares it with Transformers there, 9 minutes for each part
# (benchmarks/gpu/peers.py).
# Both run from a bundle of `./dev gpu-bundle`, or from a clone with the build of TESSERA_PRESET. LibTorch is that of
# python3's torch, or the one that TESSERA_LIBTORCH names. `--device cpu` goes through the same lines without a GPU,
# with tiny models.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
die() {
  printf 'gpu_check: %s\n' "$*" >&2
  exit 2
}
command -v python3 >/dev/null || die "python3 is missing"
what=check
if [ "${1:-}" = peers ]; then what=peers && shift; fi

if [ -d "$here/bin" ]; then
  bundle=$here
  glibc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2) needs=$(cat "$here/glibc")
  [ "$(printf '%s\n' "$needs" "$glibc" | sort -V | head -n 1)" = "$needs" ] ||
    die "the bundle needs glibc $needs or newer (Debian 12, Ubuntu 24.04), and this machine has $glibc: build there, and run scripts/gpu_check.sh"
  torch=${TESSERA_LIBTORCH:-$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")')}
  [ -n "$torch" ] || die "python3 has no torch, and TESSERA_LIBTORCH names no folder with LibTorch"
  [ -f "$torch/lib/libtorch_cpu.so" ] || die "$torch holds no lib/libtorch_cpu.so"
  # The machine's C++ library comes before the bundle's, which may be older than LibTorch needs.
  export LD_LIBRARY_PATH=$bundle/lib:$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  "$bundle/bin/tessera" --version >/dev/null 2>&1 || export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$bundle/lib/fallback
else
  root=$(dirname "$here")
  build=$root/build/${TESSERA_PRESET:-release}
  for file in tessera tests/cuda_tests; do
    [ -x "$build/$file" ] || die "$build/$file is missing: scripts/build.sh release tessera_cli cuda_tests, or take a bundle"
  done
  bundle=$(mktemp -d)
  trap 'rm -rf "$bundle"' EXIT
  mkdir "$bundle/bin" "$bundle/lib"
  ln -s "$build/tessera" "$build/tests/cuda_tests" "$bundle/bin/"
  own=$build/libtessera_cuda.so
  [ ! -e "$own" ] || ln -s "$own" "$bundle/lib/"
  here=$root/benchmarks
fi
status=0
python3 "$here/gpu/$what.py" --bundle "$bundle" "$@" || status=$?
exit $status
