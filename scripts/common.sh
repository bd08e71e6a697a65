# Shared by the developer scripts; sourced, not run.
# shellcheck disable=SC2034 # the scripts that source this file use them
TORCH_VERSION=2.11.0
CUDART_VERSION=13.0.96
CUPTI_VERSION=13.0.85
SMOLLM2_VERSION=0.1.2
CACHE_DIR=${TESSERA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera}
LIBTORCH_DIR=${TESSERA_LIBTORCH:-$CACHE_DIR/libtorch-$TORCH_VERSION}

say() { printf '== %s\n' "$*"; }
die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# fetch_wheel NAME VERSION DIR: downloads one wheel, unless it is there; tries three times.
fetch_wheel() {
  local name=$1 version=$2 dir=$3 try
  mkdir -p "$dir"
  for try in 1 2 3; do
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps \
      --only-binary=:all: --python-version 3.11 --implementation cp \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 \
      --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any \
      --dest "$dir" "$name==$version"; then
      return 0
    fi
    say "download of $name $version failed (try $try of 3)"
  done
  die "could not download $name $version"
}
