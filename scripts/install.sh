#!/usr/bin/env bash
# install.sh [PREFIX]: builds the program and its library, on a machine with a GPU the CUDA kernels too, puts them below PREFIX
# with the LibTorch that set-up has fetched, and says how to call the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
prefix=${1:-$HOME/.local}
case "$prefix" in /*) ;; *) prefix=$PWD/$prefix ;; esac
target=tessera_cli
[ ! -e /proc/driver/nvidia/version ] || target=tessera_files
scripts/build.sh release $target
umask 022 # What root installs, every user can run.
cmake --install build/release --prefix "$prefix" >build/release/install.log ||
  die "installing failed: build/release/install.log"
say "installed $prefix/bin/tessera"
case ":$PATH:" in
  *":$prefix/bin:"*) say "try: tessera doctor" ;;
  *) say "put it on the PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
