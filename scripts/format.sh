#!/usr/bin/env bash
# format.sh [PATH...]: rewrites the C++ sources among the named files and folders, or all of them, with clang-format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
command -v clang-format >/dev/null || die "clang-format is missing (Debian: apt-get install clang-format)"
mapfile -t files < <(cpp_sources "$@")
[ ${#files[@]} -gt 0 ] || die "no source to format"
clang-format -i "${files[@]}"
say "formatted ${#files[@]} files"
