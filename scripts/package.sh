#!/usr/bin/env bash
# package.sh [--folder-only | --wheel | --release] [OUT]: makes OUT/tessera-VERSION-linux-ARCH/ from the built program: the
# program, every library that it and its mpirun need but glibc's, and the licences. Beside it come a tar.xz of it; with
# --wheel a wheel for pip instead, which takes LibTorch from Python's torch (scripts/wheel.py); with --release both. OUT is
# build/package unless named. TESSERA_PRESET picks the build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
source scripts/needed_libraries.sh
build=build/${TESSERA_PRESET:-release}
wants_archive=1 wants_wheel=0
case "${1:-}" in
  --folder-only) wants_archive=0 ;;
  --wheel) wants_archive=0 wants_wheel=1 ;;
  --release) wants_wheel=1 ;;
  -*) die "package: unknown option '$1', need --folder-only, --wheel or --release" ;;
esac
case "${1:-}" in -*) shift ;; esac
out=${1:-build/package}

for tool in patchelf strip ldd xz mpirun orted ompi_info; do
  command -v "$tool" >/dev/null || die "$tool is missing: run ./dev setup"
done
[ -x "$build/tessera" ] || die "$build/tessera is missing: run ./dev build"
version=$("$build/tessera" --version | awk '{print $2}')
name=tessera-$version-linux-$(uname -m)
mkdir -p "$out"
out=$(cd "$out" && pwd -P)
package=$out/$name
staging=$(mktemp -d "$out/.tmp.XXXXXX")
trap 'rm -rf "$staging"' EXIT
mkdir -p "$staging"/{bin,lib/openmpi,lib/pmix,libexec,share,licenses}

origins=()  # the files that the package's libraries were copied from
add_needed() {
  local library path list
  list=$(needed "$1")
  while read -r library path; do
    [ -z "$library" ] || [ -e "$staging/lib/$library" ] && continue
    install -m 644 "$path" "$staging/lib/$library"
    origins+=("$path")
  done <<<"$list"
}

say "libraries"
install -m 755 "$build/tessera" "$staging/bin/tessera"
add_needed "$build/tessera"
# Parquet and arrow files need this library, which exists if libarrow was there to build it.
if [ -e "$build/tessera-tables.so" ]; then
  install -m 644 "$build/tessera-tables.so" "$staging/lib/tessera-tables.so"
  add_needed "$build/tessera-tables.so"
fi
# Files of the hub need libcurl, which the program opens when it fetches one.
libcurl=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk '$1 == "libcurl.so.4" && /x86-64|AArch64/ && !path {path = $NF} END {print path}')
[ -n "$libcurl" ] || die "libcurl.so.4 is missing: run ./dev setup"
install -m 644 "$libcurl" "$staging/lib/libcurl.so.4"
origins+=("$libcurl")
add_needed "$libcurl"
# GPUs need this library, which exists if nvcc was there to build it; LibTorch's CUDA part is the machine's own.
own_kernels=$build/libtessera_cuda.so
if [ -e "$own_kernels" ]; then
  install -m 644 "$own_kernels" "$staging/lib/libtessera_cuda.so"
  add_needed "$own_kernels"
fi
# orted is what mpirun starts on other machines. A script beside the program gives each of the two its plugins.
for name_of_mpi in mpirun orted; do
  file=$(readlink -f "$(command -v $name_of_mpi)")
  install -m 755 "$file" "$staging/libexec/$name_of_mpi"
  install -m 755 scripts/packaged_mpi.sh "$staging/bin/$name_of_mpi"
  add_needed "$file"
done
path_of() { ompi_info --parsable --path "$1" | head -n 1 | cut -d: -f3; }
plugins=$(path_of pkglibdir)
for plugin in "$plugins"/mca_pmix_ext3x.so "$plugins"/mca_shmem_mmap.so; do
  [ -e "$plugin" ] || die "$plugin is missing: a package is made with OpenMPI 4 and PMIx as Debian 12 has them"
  add_needed "$plugin"
done
# Only those of MPI's plugins are taken that need nothing more: the drivers of fast networks stay with the cluster's own
# MPI.
for plugin in "$plugins"/mca_*.so; do
  list=$(needed "$plugin" 2>/dev/null) || continue
  is_complete=1
  while read -r library _; do
    [ -z "$library" ] || [ -e "$staging/lib/$library" ] || is_complete=0
  done <<<"$list"
  [ $is_complete = 0 ] || install -m 644 "$plugin" "$staging/lib/openmpi/"
done
# This file tells the program that it runs from a package.
printf '%s\n' "$name" >"$staging/lib/openmpi/tessera-package"
cp -r "$(path_of pkgdatadir)" "$staging/share/openmpi"
list=$(needed "$plugins/mca_pmix_ext3x.so")
pmix=$(readlink -f "$(awk '$1 ~ /^libpmix/ {print $2}' <<<"$list")")
for folder in "$(dirname "$pmix")"/pmix "$(dirname "$pmix")"/pmix2/lib/pmix; do
  [ -d "$folder" ] && install -m 644 "$folder"/*.so "$staging/lib/pmix/"
done

say "stripping and run paths"
# set_run_path PATH FILE...: strips the files and has them look for libraries in PATH first (the other kind of run path
# comes after LD_LIBRARY_PATH).
set_run_path() {
  local path=$1 file
  shift
  for file in "$@"; do
    # NVIDIA's are passed on as they are.
    case "$(basename "$file")" in libcurl.so.*) ;; libcu*) continue ;; esac
    strip --strip-unneeded "$file"
    # A file that needs no library (ICU's data) stays as it is.
    [ -z "$(patchelf --print-needed "$file")" ] || patchelf --force-rpath --set-rpath "$path" "$file"
  done
}
# shellcheck disable=SC2016 # the loader's $ORIGIN
{
  set_run_path '$ORIGIN/../lib' "$staging"/bin/tessera "$staging"/libexec/*
  set_run_path '$ORIGIN' "$staging"/lib/*.so*
  set_run_path '$ORIGIN/..' "$staging"/lib/openmpi/*.so "$staging"/lib/pmix/*.so
}

say "licences"
licenses=$LIBTORCH_DIR/licenses
if [ ! -d "$licenses" ]; then
  say "this LibTorch was unpacked without its licences: fetching its wheels for them"
  wheels=$staging/wheels
  fetch_libtorch_wheels "$wheels"
  unpack_licenses "$wheels" "$staging/wheel-licenses"
  if [ -w "$LIBTORCH_DIR" ] && [ -z "${TESSERA_LIBTORCH:-}" ]; then
    cp -r "$staging/wheel-licenses" "$licenses.$$" && mv -T "$licenses.$$" "$licenses"
  fi
  licenses=$staging/wheel-licenses
fi
cp -r "$licenses"/. "$staging/licenses/"
[ ! -e "$staging/lib/tessera-tables.so" ] || cp -r "$LIBARROW_DIR/licenses/." "$staging/licenses/"
rm -rf "$staging/wheels" "$staging/wheel-licenses"
# These are the Debian packages of the copied files, and the packages that are compiled in.
{
  printf '%s\n' nlohmann-json3-dev libcli11-dev openmpi-bin
  for file in "${origins[@]}"; do
    case "$file" in "$LIBTORCH_DIR"/* | "$LIBARROW_DIR"/*) continue ;; esac
    real=$(readlink -f "$file")
    dpkg -S "$real" 2>/dev/null || dpkg -S "${real#/usr}" || die "no package owns $real, so its licence is not known"
  done | cut -d: -f1
} | sort -u | while read -r owner; do
  [ -e "/usr/share/doc/$owner/copyright" ] || die "$owner says nothing about its licence"
  install -D -m 644 "/usr/share/doc/$owner/copyright" "$staging/licenses/$owner/copyright"
done

install -D -m 644 LICENSE "$staging/licenses/tessera/LICENSE"
mkdir "$staging/share/tessera"
cp -r recipes docs README.md CONTRIBUTING.md LICENSE "$staging/share/tessera/"
chmod -R u=rwX,go=rX "$staging"

say "checking"
glibc=0
files=$(find "$staging/bin/tessera" "$staging/libexec" "$staging/lib" -type f ! -name tessera-package)
while read -r file; do
  # The program has already loaded the libraries that NVIDIA's need, so these are not checked.
  case "$(basename "$file")" in libcu*) continue ;; esac
  list=$(env -i PATH="$PATH" bash -c "set -o pipefail; $(declare -f is_glibc needed die)"'; needed "$1"' check "$file")
  while read -r library path; do
    case "${path:+$(readlink -f "$path")}" in
      "" | "$staging"/*) ;;
      *) die "$file would take $library from $path" ;;
    esac
  done <<<"$list"
  # The package needs the newest glibc that any of its files asks for.
  newest=$(objdump -T "$file" | sed -n 's/.*GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
  [ "${newest:-0}" -le "$glibc" ] || glibc=$newest
done <<<"$files"

rm -rf "$package"
mv -T "$staging" "$package"
trap - EXIT
size_of() { du -sh --apparent-size "$1" | cut -f1; }
say "$package: $(size_of "$package") (program $(size_of "$package/bin/tessera"), libtorch_cpu.so $(size_of "$package/lib/libtorch_cpu.so")); runs with glibc 2.$glibc or newer"
if [ $wants_wheel = 1 ]; then
  say "wheel"
  # What is linked on this machine may need its glibc, whatever the symbols in use today ask for.
  wheel=$(python3 -B scripts/wheel.py make "$package" "$version" "$TORCH_VERSION" "$(getconf GNU_LIBC_VERSION | sed 's/.*\.//')" "$out")
  python3 -B scripts/wheel.py check "$wheel"
  say "$wheel: $(size_of "$wheel"); pip install takes it"
fi
[ $wants_archive = 1 ] || exit 0
say "packing"
archive=$package.tar.xz
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -c "$name" | xz -T0 -6 >"$archive.tmp"
mv "$archive.tmp" "$archive"
say "$archive: $(size_of "$archive")"
