# The developer scripts share this file: they source it, nobody runs it.
# shellcheck disable=SC2034 # the scripts that source this file use them
TORCH_VERSION=2.11.0
CUDART_VERSION=13.0.96
CUPTI_VERSION=13.0.85
NVCC_VERSION=13.0.88
CCCL_VERSION=13.0.85
# libtorch_cuda.so of that version loads these; the versions are the pins of its wheel and of cuda-toolkit 13.0.2.
CUDA_WHEELS=(nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3
  nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5)
PYARROW_VERSION=26.0.1
SMOLLM2_VERSION=0.1.2
# These are the versions of Debian 12: CI builds with this compiler, and the sources have this clang-format's format.
CI_COMPILER=12
CI_CLANG_FORMAT=14
CACHE_DIR=${TESSERA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera}
LIBTORCH_DIR=${TESSERA_LIBTORCH:-$CACHE_DIR/libtorch-$TORCH_VERSION}
LIBARROW_DIR=${TESSERA_LIBARROW:-$CACHE_DIR/libarrow-$PYARROW_VERSION}
NVCC_DIR=${TESSERA_NVCC_DIR:-$CACHE_DIR/nvcc-$NVCC_VERSION}

say() { printf '== %s\n' "$*"; }
die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# cpp_sources [PATH...]: lists the sources that clang-format knows, in the whole tree or in these files and folders.
cpp_sources() { git ls-files --cached --others --exclude-standard --deduplicate -- "$@" | grep -E '\.(h|cpp|cuh?)$'; }

# lock_cache: holds the per-user cache to the end of the script, as set-up may run from several clones at once.
lock_cache() {
  mkdir -p "$CACHE_DIR"
  exec 9>"$CACHE_DIR/setup.lock"
  flock 9
}

# fetch_wheel NAME VERSION DIR: downloads one wheel, unless it is there; tries three times.
fetch_wheel() {
  local name=$1 version=$2 dir=$3 try minor platforms=(--platform any --platform manylinux2014_x86_64)
  # pip takes only wheels of the named platforms: these are all up to Debian 12's glibc.
  for minor in {17..36}; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
  mkdir -p "$dir"
  for try in 1 2 3; do
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps \
      --only-binary=:all: --python-version 3.11 --implementation cp "${platforms[@]}" \
      --dest "$dir" "$name==$version"; then
      return 0
    fi
    say "download of $name $version failed (try $try of 3)"
  done
  die "could not download $name $version"
}

# install_packages NAME...: installs the Debian packages that are missing.
install_packages() {
  local package missing=() sudo=""
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing: ${missing[*]}"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "packages are missing (${missing[*]}); run as root, or install sudo"
    sudo=sudo
  fi
  export DEBIAN_FRONTEND=noninteractive
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# fetch_libtorch_wheels DIR: downloads the three wheels that LibTorch's CPU part is taken from.
fetch_libtorch_wheels() {
  fetch_wheel torch "$TORCH_VERSION" "$1"
  fetch_wheel nvidia-cuda-runtime "$CUDART_VERSION" "$1"
  fetch_wheel nvidia-cuda-cupti "$CUPTI_VERSION" "$1"
}

# unpack_licenses WHEELS DIR: puts the licence texts of the wheels into DIR, in a folder for each wheel.
unpack_licenses() {
  local wheel
  for wheel in "$1"/torch-"$TORCH_VERSION"-*.whl "$1"/nvidia_cuda_{runtime-"$CUDART_VERSION",cupti-"$CUPTI_VERSION"}-*.whl; do
    unpack_license "$wheel" "$2"
  done
}

# unpack_license WHEEL DIR: puts the licence texts of one wheel into a folder of the wheel's name.
unpack_license() {
  local name
  name=$(basename "$1")
  mkdir -p "$2/${name%%-*}"
  # Wheels keep the texts in their metadata, or beside the libraries.
  unzip -q -o -j "$1" '*.dist-info/licenses/*' -d "$2/${name%%-*}" 2>/dev/null ||
    unzip -q -o -j "$1" '*/LICENSE*' -d "$2/${name%%-*}"
}
