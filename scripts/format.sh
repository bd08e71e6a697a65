#!/usr/bin/env bash
# format.sh [FILE...]: rewrites the named sources, or all of them, with clang-format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
command -v clang-format >/dev/null || die "clang-format is missing (Debian: apt-get install clang-format)"
if [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(git ls-files --cached --others --exclude-standard --deduplicate -- '*.h' '*.cpp' '*.cu' '*.cuh')
fi
[ ${#files[@]} -gt 0 ] || die "no source to format"
clang-format -i "${files[@]}"
say "formatted ${#files[@]} files"
