#!/usr/bin/env bash
# gpu_bundle.sh [OUT]: builds what a machine needs that has a GPU, Python with torch, and nothing of ours, and makes
# OUT/tessera-gpu/ and its tar.xz of it: the program, the tests that need a GPU, libtessera_cuda.so where nvcc is there to
# make it, every library that they need but glibc's and LibTorch's, and gpu_check.sh. OUT is build/gpu-bundle unless named.
# TESSERA_PRESET picks the build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
source scripts/needed_libraries.sh
build=build/${TESSERA_PRESET:-release}
out=${1:-build/gpu-bundle}
most_bytes=20000000

for tool in patchelf strip ldd xz; do
  command -v "$tool" >/dev/null || die "$tool is missing: run ./dev setup"
done
scripts/build.sh "${TESSERA_PRESET:-release}" tessera_files cuda_tests
mkdir -p "$out"
out=$(cd "$out" && pwd -P)
staging=$(mktemp -d "$out/.tmp.XXXXXX")
moved=$(mktemp -d)
trap 'rm -rf "$staging" "$moved"' EXIT
mkdir -p "$staging"/{bin,lib/fallback,gpu}

# is_libtorch LIBRARY: true for LibTorch's own libraries, which come with Python's torch on the machine.
is_libtorch() {
  case "$1" in libtorch*.so* | libc10*.so* | libcudart.so.* | libcupti.so.* | libgomp.so.*) return 0 ;; esac
  return 1
}
add() {
  local file=$1 folder=$2 library path list
  install -m 755 "$file" "$staging/$folder/"
  list=$(needed "$file")
  while read -r library path; do
    [ -n "$library" ] || continue
    is_libtorch "$library" && continue
    case "$library" in
      libstdc++.so.* | libgcc_s.so.*) install -m 644 "$path" "$staging/lib/fallback/$library" ;;
      *) install -m 644 "$path" "$staging/lib/$library" ;;
    esac
  done <<<"$list"
}
say "program, tests and libraries"
add "$build/tessera" bin
add "$build/tests/cuda_tests" bin
add "$build/tests/libstub_nccl.so" lib
own=$build/libtessera_cuda.so
if [ -e "$own" ]; then add "$own" lib; else say "without libtessera_cuda.so, which this build has not made"; fi
cp scripts/gpu_check.sh LICENSE "$staging/"
cp benchmarks/gpu/*.py "$staging/gpu/"
# The packed cases of the comparison take these rows: real instructions if they are at hand.
instructions=${TESSERA_SHARED_DATA:-../shared/data}/alpaca_roleplay.json
if [ -f "$instructions" ]; then
  install -m 644 "$instructions" "$staging/gpu/instructions.json"
else
  install -m 644 examples/data/tessera_chat.jsonl "$staging/gpu/instructions.jsonl"
fi

say "stripping"
while read -r file; do
  strip --strip-unneeded "$file"
  # The files load each other from here; LD_LIBRARY_PATH names LibTorch. A file that needs no library (ICU's data) stays
  # as it is.
  # shellcheck disable=SC2016 # the loader's $ORIGIN
  [ -z "$(patchelf --print-needed "$file")" ] || patchelf --set-rpath '$ORIGIN:$ORIGIN/../lib' "$file"
done < <(find "$staging/bin" "$staging/lib" -type f)
# This is the newest glibc version that something here asks for; lib/fallback is for machines as new as this one.
find "$staging/bin" "$staging/lib" -maxdepth 1 -type f -exec objdump -T {} + 2>/dev/null |
  grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1 | cut -d_ -f2 >"$staging/glibc"
chmod -R u=rwX,go=rX "$staging"

say "checking"
# The bundle must start elsewhere: in another folder, with no environment, and LibTorch named by its folder alone.
cp -r "$staging" "$moved/tessera-gpu"
for program in "tessera --version" "cuda_tests --gtest_list_tests"; do
  (cd / && env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH="$moved/tessera-gpu/lib:$LIBTORCH_DIR/lib" \
    sh -c "'$moved/tessera-gpu/bin/'$program" >/dev/null) || die "'$program' does not start from the bundle"
done

rm -rf "$out/tessera-gpu"
mv -T "$staging" "$out/tessera-gpu"
archive=$out/tessera-gpu.tar.xz
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -c tessera-gpu | xz -T0 -7 >"$archive.tmp"
mv "$archive.tmp" "$archive"
bytes=$(stat -c %s "$archive")
[ "$bytes" -le $most_bytes ] || die "$archive has $bytes bytes, may have $most_bytes"
say "$archive: $bytes bytes. On a machine with a GPU: tar xf tessera-gpu.tar.xz && tessera-gpu/gpu_check.sh"
