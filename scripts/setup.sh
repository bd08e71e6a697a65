#!/usr/bin/env bash
# setup.sh [--tests]: installs the packages that are missing (with --tests also those that lint and fuzzing need) and
# puts LibTorch and libarrow into the per-user cache. Does nothing, quickly, when all is there. Safe to run from several
# clones at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

packages=(build-essential cmake ninja-build ccache git pkg-config python3 python3-pip unzip
  libopenmpi-dev openmpi-bin libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libicu-dev
  zlib1g-dev libzstd-dev
  libgtest-dev libgmock-dev patchelf)
[ "${1:-}" != --tests ] || packages+=(clang-format shellcheck clang libclang-rt-14-dev)
install_packages "${packages[@]}"
command -v c++ >/dev/null || die "no C++ compiler after set-up"

# For parquet and arrow files alone: a machine that cannot have it builds all the rest.
scripts/fetch_libarrow.sh || say "without libarrow: parquet and arrow files will be refused"

# For Tessera's own CUDA kernels alone.
case " $* " in
  *" --tests "* | *" --cuda "*) scripts/fetch_nvcc.sh || say "without nvcc: the CUDA kernels will not be built" ;;
esac

# A LibTorch of the user's own is used as it is, and never touched.
if [ -n "${TESSERA_LIBTORCH:-}" ]; then
  [ -f "$LIBTORCH_DIR/lib/libtorch_cpu.so" ] || die "TESSERA_LIBTORCH=$LIBTORCH_DIR holds no lib/libtorch_cpu.so"
  exit 0
fi

if [ ! -e "$LIBTORCH_DIR/.complete" ]; then
  mkdir -p "$CACHE_DIR"
  exec 9>"$CACHE_DIR/setup.lock"
  flock 9
  if [ ! -e "$LIBTORCH_DIR/.complete" ]; then
    say "fetching LibTorch $TORCH_VERSION (531 MB, once for each user)"
    wheels="$CACHE_DIR/wheels"
    staging="$LIBTORCH_DIR.tmp.$$"
    rm -rf "$staging"
    mkdir -p "$staging"
    trap 'rm -rf "$staging"' EXIT
    fetch_libtorch_wheels "$wheels"
    unzip -q -o "$wheels"/torch-"$TORCH_VERSION"-*.whl 'torch/include/*' 'torch/share/*' \
      'torch/lib/libtorch_cpu.so' 'torch/lib/libc10.so' 'torch/lib/libgomp*' -d "$staging"
    unzip -q -o -j "$wheels"/nvidia_cuda_runtime-"$CUDART_VERSION"-*.whl '*/libcudart.so.13' -d "$staging/torch/lib"
    unzip -q -o -j "$wheels"/nvidia_cuda_cupti-"$CUPTI_VERSION"-*.whl '*/libcupti.so.13' -d "$staging/torch/lib"
    unpack_licenses "$wheels" "$staging/torch/licenses"
    rm -rf "$LIBTORCH_DIR"
    mv "$staging/torch" "$LIBTORCH_DIR"
    touch "$LIBTORCH_DIR/.complete"
    rm -rf "$staging" "$wheels"/torch-*.whl "$wheels"/nvidia_*.whl
    trap - EXIT
  fi
fi
