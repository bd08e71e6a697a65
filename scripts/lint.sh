#!/usr/bin/env bash
# lint.sh [--all] [FILE...]: the direction of includes, the form of the sources and scripts, and clang-tidy
# on the C++ files that differ from main (or on all, or on those named). Everything that can be checked is,
# before a missing tool or a finding makes it fail. TESSERA_PRESET picks the compile commands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
preset=${TESSERA_PRESET:-release}
failed=0

fail() {
  printf 'lint: %s\n' "$*" >&2
  failed=1
}
have() {
  if ! command -v "$1" >/dev/null; then
    fail "$1 is missing, so its part was not checked (Debian: apt-get install $1)"
    return 1
  fi
}
sources() { git ls-files --cached --others --exclude-standard --deduplicate -- '*.h' '*.cpp'; }
# Files that differ from where this branch left main, committed or not.
changed() {
  local base
  base=$(git merge-base HEAD "$(git rev-parse --verify --quiet origin/main || git rev-parse --verify --quiet main || echo HEAD)")
  { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | sort -u
}

all=0
if [ "${1:-}" = --all ]; then
  all=1
  shift
fi

say "direction of includes"
python3 scripts/check_includes.py || fail "includes against the direction"

say "shell scripts"
mapfile -t scripts < <(printf '%s\n' dev .ci/run; git ls-files --cached --others --exclude-standard --deduplicate -- '*.sh')
if have shellcheck; then
  shellcheck --severity=warning --shell=bash --external-sources "${scripts[@]}" || fail "shellcheck has findings"
fi

say "clang-format"
if have clang-format; then
  if [ $# -gt 0 ]; then files=("$@"); else mapfile -t files < <(sources); fi
  if [ ${#files[@]} -gt 0 ]; then
    unformatted=0
    for file in "${files[@]}"; do
      if ! finding=$(clang-format --dry-run --Werror "$file" 2>&1); then
        printf '%s: not formatted\n' "${finding%%: error:*}" >&2
        unformatted=$((unformatted + 1))
      fi
    done
    [ "$unformatted" = 0 ] || fail "$unformatted files are not formatted: run ./dev format"
  fi
fi

say "clang-tidy"
database=build/$preset/compile_commands.json
if ! have clang-tidy; then
  :
elif [ ! -f "$database" ]; then
  fail "$database is missing, so clang-tidy did not run: run ./dev build $preset first"
else
  if [ $# -gt 0 ]; then candidates=("$@")
  elif [ $all = 1 ]; then mapfile -t candidates < <(sources)
  else mapfile -t candidates < <(changed)
  fi
  files=()
  for file in "${candidates[@]}"; do
    # Headers are seen through the sources that include them.
    case "$file" in *.cpp) ;; *) continue ;; esac
    if grep -qF "\"$PWD/$file\"" "$database"; then files+=("$file"); else say "not part of build/$preset: $file"; fi
  done
  if [ ${#files[@]} -eq 0 ]; then
    say "no C++ file to check"
  else
    # The precompiled header is gcc's: clang reads its source instead.
    commands=$(mktemp -d)
    trap 'rm -rf "$commands"' EXIT
    sed -E "s# -Winvalid-pch##g; s#-include [^ ]*/cmake_pch\\.hxx#-include $PWD/tessera/precompiled.h#g" "$database" \
      >"$commands/compile_commands.json"
    printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "${TESSERA_JOBS:-$(nproc)}" \
      clang-tidy --quiet -p "$commands" --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
      2> >(grep -v 'warnings generated' >&2) || fail "clang-tidy has findings"
  fi
fi

[ $failed = 0 ] || exit 1
say "lint: all clean"
