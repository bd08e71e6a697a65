#!/usr/bin/env bash
# setup.sh [--tests] [--cuda]: installs the packages that are missing (with --tests also those that lint and fuzzing need)
# and puts LibTorch and libarrow into the per-user cache, with --cuda also LibTorch's CUDA part and NVIDIA's libraries
# that it loads (2.5 GB to fetch, 4.5 GB in the cache). Does nothing, quickly, when all is there. Safe to run from several
# clones at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
wants_tests=0 wants_cuda=0
for option in "$@"; do
  case "$option" in
    --tests) wants_tests=1 ;;
    --cuda) wants_cuda=1 ;;
    *) die "setup: unknown option '$option', need --tests or --cuda" ;;
  esac
done

packages=(build-essential cmake ninja-build ccache git pkg-config python3 python3-pip unzip
  libopenmpi-dev openmpi-bin libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libicu-dev
  zlib1g-dev libzstd-dev libcurl4-openssl-dev libedit2
  libgtest-dev libgmock-dev patchelf mold)
# Debian 12 has Boost 1.81 beside an older one; newer systems have one of their own that is newer.
if [ "$(. /etc/os-release && echo "$ID${VERSION_ID:-}")" = debian12 ]; then
  packages+=(libboost1.81-dev)
else
  packages+=(libboost-dev)
fi
[ $wants_tests = 0 ] || packages+=(clang-format shellcheck clang libclang-rt-14-dev)
install_packages "${packages[@]}"
command -v c++ >/dev/null || die "no C++ compiler after set-up"

# Only parquet and arrow files need libarrow: a machine that cannot have it builds all the rest.
scripts/fetch_libarrow.sh || say "without libarrow: parquet and arrow files will be refused"

# Only Tessera's own CUDA kernels need nvcc.
[ $wants_tests$wants_cuda = 00 ] || scripts/fetch_nvcc.sh || say "without nvcc: the CUDA kernels will not be built"

# A LibTorch that the user names is used as it is, and never changed.
if [ -n "${TESSERA_LIBTORCH:-}" ]; then
  [ -f "$LIBTORCH_DIR/lib/libtorch_cpu.so" ] || die "TESSERA_LIBTORCH=$LIBTORCH_DIR holds no lib/libtorch_cpu.so"
  [ $wants_cuda = 0 ] || [ -f "$LIBTORCH_DIR/lib/libtorch_cuda.so" ] ||
    die "TESSERA_LIBTORCH=$LIBTORCH_DIR holds no lib/libtorch_cuda.so: unset it, or name a torch with CUDA"
  exit 0
fi

if [ ! -e "$LIBTORCH_DIR/.complete" ]; then
  lock_cache
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

if [ $wants_cuda = 1 ] && [ ! -e "$LIBTORCH_DIR/.complete-cuda" ]; then
  lock_cache
  if [ ! -e "$LIBTORCH_DIR/.complete-cuda" ]; then
    say "fetching LibTorch's CUDA part and NVIDIA's libraries for it (2.5 GB, once for each user)"
    wheels="$CACHE_DIR/wheels"
    staging="$CACHE_DIR/cuda.tmp.$$"
    rm -rf "$staging"
    mkdir -p "$staging"
    trap 'rm -rf "$staging"' EXIT
    fetch_wheel torch "$TORCH_VERSION" "$wheels"
    unzip -q -o -j "$wheels"/torch-"$TORCH_VERSION"-*.whl 'torch/lib/libtorch_cuda*.so' 'torch/lib/libc10_cuda.so' \
      'torch/lib/libtorch_nvshmem.so' -d "$staging/lib"
    # Each wheel is fetched alone and removed at once: together the wheels take as much disk as their contents.
    for wheel in "${CUDA_WHEELS[@]}"; do
      fetch_wheel "${wheel%%==*}" "${wheel##*==}" "$staging/wheel"
      unzip -q -o "$staging"/wheel/*.whl 'nvidia/*/lib/*.so*' -d "$staging"
      unpack_license "$staging"/wheel/*.whl "$CACHE_DIR/nvidia/licenses"
      rm -rf "$staging/wheel"
    done
    # The wheels' own run paths look here: in ../../nvidia from LibTorch's lib.
    mkdir -p "$CACHE_DIR/nvidia"
    cp -rl "$staging"/nvidia/. "$CACHE_DIR/nvidia/"
    mv "$staging"/lib/*.so "$LIBTORCH_DIR/lib/"
    touch "$LIBTORCH_DIR/.complete-cuda"
    rm -rf "$staging" "$wheels"/torch-*.whl
    trap - EXIT
  fi
fi
