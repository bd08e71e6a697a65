#!/usr/bin/env bash
# check_cudnn_graphs.sh FRONTEND CUDA [WORK]
#
# Holds the graphs of attention (tessera/ops/cuda/attention_graph.h) against those of NVIDIA's frontend: cuDNN compiles the
# same kernels of both for an H100, to the byte. No GPU is needed; 2 minutes.
#   FRONTEND  the folder with cudnn_frontend.h (github.com/NVIDIA/cudnn-frontend 1.32)
#   CUDA      the folder of CUDA's toolkit, with cuDNN's headers and library in it
#   WORK      a folder for what is built
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2; exit 2; }
frontend=$1 cuda=$2 work=${3:-$(mktemp -d)}
cd "$(dirname "$0")/../.."
mkdir -p "$work"
own=(tessera/ops/cuda/attention_graph.cpp tessera/ops/cuda/cudnn_graph.cpp tessera/ops/cuda/cudnn_library.cpp tessera/core/error.cpp tessera/core/shared_library.cpp)
g++ -std=c++20 -O1 -shared -fPIC tests/ops/cuda/fake_driver.cpp -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1"
# cuDNN and NVRTC are found in CUDA's folder.
libraries=$cuda/lib64
[ -e "$libraries/libcudnn.so.9" ] || libraries=$cuda/lib
g++ -std=c++20 -O0 -w -I. -isystem "$frontend" -isystem "$cuda/include" tests/reference/check_cudnn_graphs.cpp "${own[@]}" \
  "-L$libraries" "-L$cuda/lib64" "-Wl,-rpath,$libraries:$cuda/lib64" -lcudnn -lcudart -lnvrtc -ldl -o "$work/check_cudnn_graphs"
"$work/check_cudnn_graphs" "$work/libcuda.so.1" "$libraries/libcudnn.so.9"
