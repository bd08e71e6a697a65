#!/usr/bin/env bash
# lint.sh [--quick | --all] [FILE...]: the direction of includes, devices of tensors, first words of comments, the form of the
# sources and scripts, and clang-tidy on the C++ files that differ from main (or on none, or on all, or on those named).
# Everything that can be checked is, before a missing tool or a finding makes it fail. TESSERA_PRESET picks the compile
# commands.
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
# Files that differ from where this branch left main, committed or not.
changed() {
  local base
  base=$(git merge-base HEAD "$(git rev-parse --verify --quiet origin/main || git rev-parse --verify --quiet main || echo HEAD)")
  { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | sort -u
}

scope=changed
case "${1:-}" in
  --quick) scope=none && shift ;;
  --all) scope=all && shift ;;
esac

say "direction of includes"
python3 scripts/check_includes.py || fail "includes against the direction"

say "devices of tensors"
python3 scripts/check_tensors.py || fail "tensors against the rules about devices"

say "comments"
python3 scripts/check_comments.py || fail "comments that begin like a piece of a sentence"

say "shell scripts"
mapfile -t scripts < <(printf '%s\n' dev .ci/run; git ls-files --cached --others --exclude-standard --deduplicate -- '*.sh')
if have shellcheck; then
  shellcheck --severity=warning --shell=bash --external-sources "${scripts[@]}" || fail "shellcheck has findings"
fi

say "clang-format"
if ! have clang-format; then
  :
elif [[ $(clang-format --version) != *"version $CI_CLANG_FORMAT."* ]]; then
  say "left out: the sources have the format of clang-format $CI_CLANG_FORMAT, not of $(clang-format --version)"
else
  mapfile -t files < <(cpp_sources "$@")
  if [ ${#files[@]} -gt 0 ]; then
    # The places of the findings, without the sources that they quote.
    unformatted=$(printf '%s\0' "${files[@]}" | xargs -0 -n 50 -P "$(nproc)" clang-format --dry-run --Werror 2>&1 |
      sed -n 's/: error: .*//p' | sort -u -t: -k1,1 || true)
    [ -z "$unformatted" ] || fail "$(sed 's/$/: not formatted/' <<<"$unformatted")
run ./dev format"
  fi
fi

finish() {
  [ $failed = 0 ] || exit 1
  say "lint: all clean"
  exit 0
}
[ $scope != none ] || finish

say "clang-tidy"
database=build/$preset/compile_commands.json
if ! have clang-tidy; then
  :
elif [ ! -f "$database" ]; then
  fail "$database is missing, so clang-tidy did not run: run ./dev build $preset first"
else
  if [ $# -gt 0 ]; then candidates=("$@")
  elif [ $scope = all ]; then mapfile -t candidates < <(cpp_sources)
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

finish
