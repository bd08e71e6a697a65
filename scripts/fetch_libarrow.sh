#!/usr/bin/env bash
# fetch_libarrow.sh: puts libarrow and libparquet, from the wheel of pyarrow, into the per-user cache, unless they are
# there or TESSERA_LIBARROW names others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
[ -z "${TESSERA_LIBARROW:-}" ] && [ ! -e "$LIBARROW_DIR/.complete" ] || exit 0
lock_cache
[ ! -e "$LIBARROW_DIR/.complete" ] || exit 0

say "fetching libarrow $PYARROW_VERSION (55 MB, once for each user)"
wheels="$CACHE_DIR/wheels"
staging="$LIBARROW_DIR.tmp.$$"
trap 'rm -rf "$staging"' EXIT
fetch_wheel pyarrow "$PYARROW_VERSION" "$wheels"
wheel=$(echo "$wheels"/pyarrow-"$PYARROW_VERSION"-*.whl)
mkdir -p "$staging/lib"
unzip -q -o "$wheel" 'pyarrow/include/*' -d "$staging"
mv "$staging/pyarrow/include" "$staging/include"
unzip -q -o -j "$wheel" pyarrow/libarrow.so.2600 pyarrow/libparquet.so.2600 -d "$staging/lib"
unpack_license "$wheel" "$staging/licenses"
rm -rf "$LIBARROW_DIR" "$staging/pyarrow" "$wheel"
touch "$staging/.complete"
mv "$staging" "$LIBARROW_DIR"
