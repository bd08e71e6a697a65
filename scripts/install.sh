#!/usr/bin/env bash
# install.sh [PREFIX]: puts the built program and its library below PREFIX, and says how to call it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
prefix=${1:-$HOME/.local}
case "$prefix" in /*) ;; *) prefix=$PWD/$prefix ;; esac
cmake --install build/release --prefix "$prefix" >build/release/install.log ||
  die "installing failed: build/release/install.log"
say "installed $prefix/bin/tessera"
case ":$PATH:" in
  *":$prefix/bin:"*) say "try: tessera doctor" ;;
  *) say "put it on the PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
