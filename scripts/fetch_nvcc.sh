#!/usr/bin/env bash
# fetch_nvcc.sh: puts NVIDIA's compiler, from its wheels, into the per-user cache, unless it is there or the machine has
# one (on the PATH, below /usr/local/cuda, or named by TESSERA_NVCC_DIR). Only Tessera's CUDA kernels need it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
[ -z "${TESSERA_NVCC_DIR:-}" ] && [ ! -e "$NVCC_DIR/.complete" ] || exit 0
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then exit 0; fi
lock_cache
[ ! -e "$NVCC_DIR/.complete" ] || exit 0

say "fetching nvcc $NVCC_VERSION (104 MB, once for each user)"
wheels="$CACHE_DIR/wheels"
staging="$NVCC_DIR.tmp.$$"
trap 'rm -rf "$staging"' EXIT
mkdir -p "$staging"
for name in nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt; do fetch_wheel "$name" "$NVCC_VERSION" "$wheels"; done
fetch_wheel nvidia-cuda-cccl "$CCCL_VERSION" "$wheels"
fetch_wheel nvidia-cuda-runtime "$CUDART_VERSION" "$wheels"
for wheel in "$wheels"/nvidia_{cuda_nvcc,nvvm,cuda_crt}-"$NVCC_VERSION"-*.whl "$wheels"/nvidia_cuda_cccl-"$CCCL_VERSION"-*.whl \
  "$wheels"/nvidia_cuda_runtime-"$CUDART_VERSION"-*.whl; do
  unzip -q -o "$wheel" 'nvidia/cu13/*' -d "$staging"
  unpack_license "$wheel" "$staging/licenses"
  rm -f "$wheel"
done
# A wheel's files may have lost their execute bits.
find "$staging/nvidia/cu13/bin" "$staging/nvidia/cu13/nvvm/bin" -type f -exec chmod +x {} +
mv "$staging/licenses" "$staging/nvidia/cu13/"
touch "$staging/nvidia/cu13/.complete"
rm -rf "$NVCC_DIR"
mv "$staging/nvidia/cu13" "$NVCC_DIR"
