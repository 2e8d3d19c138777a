#!/usr/bin/env bash
# Mistakes planted on purpose, one at a time: each must make the test that it names fail.
#   scripts/mutants.sh              all of tests/mutants
#   scripts/mutants.sh 3 14         these
#   scripts/mutants.sh --some 3     so many, others for each commit
# A mutant is a patch behind two lines: what is wrong, and `caught-by:` with what `cargo test` is given. The tests are run
# without any patch first: one that fails anyway catches nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh build
. scripts/stack/export.sh
root=$PWD
state=$(bash -c '. scripts/stack/lib.sh; printf %s "$state"')
home=$state/mutants tree=$state/mutants/tree log=$state/mutants/log
rm -rf "$home"; mkdir -p "$tree"
trap 'rm -rf "$home"' EXIT
# What is built in there must not be taken for ours; what it is built of is the same.
export CARGO_TARGET_DIR=$home/target FINAZ_LIVE=required
if [ -d target/debug/deps ]; then
  mkdir -p "$CARGO_TARGET_DIR/debug"
  cp -a target/debug/{.fingerprint,build,deps} "$CARGO_TARGET_DIR/debug/"
fi

mapfile -t all < <(ls tests/mutants/*.patch)
chosen=()
if [ "${1:-}" = --some ]; then
  start=$((16#$(git rev-parse HEAD 2>/dev/null | cut -c1-7 || echo 0) % ${#all[@]}))
  for ((i = 0; i < ${2:?how many}; i++)); do chosen+=("${all[(start + i * 5) % ${#all[@]}]}"); done
elif [ $# -gt 0 ]; then
  for number; do chosen+=("$(printf 'tests/mutants/%02d-*.patch' "$number")"); done
  mapfile -t chosen < <(printf '%s\n' "${chosen[@]}" | while read -r name; do ls $name; done)
else
  chosen=("${all[@]}")
fi

# The tree as it is, uncommitted changes included; times are kept, so that only what is patched is compiled again.
lay() { { git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -cT - 2>/dev/null; } | tar -xC "$tree" --no-same-owner; }
caught_by() { sed -n 's/^caught-by: //p' "$1"; }
patched() { (cd "$tree" && GIT_CEILING_DIRECTORIES=$home git apply "$@"); }
# 0: they pass. 1: a test failed, or hangs. 2: nothing was tested.
run() {
  local code=0
  # shellcheck disable=SC2046 # words for cargo
  (cd "$tree" && timeout 600 cargo test --locked $(caught_by "$1")) >"$log" 2>&1 || code=$?
  if [ "$code" = 0 ]; then grep -q '^test result: ok. [1-9]' "$log" || return 2
  elif [ "$code" = 124 ] || grep -q '^test result: FAILED' "$log"; then return 1
  else return 2; fi
}

lay
declare -A sound=()
for patch in "${chosen[@]}"; do
  tests=$(caught_by "$patch")
  [ -z "${sound[$tests]:-}" ] || continue
  code=0; run "$patch" || code=$?
  [ "$code" = 0 ] || { tail -n 30 "$log" >&2; echo "mutants: without a patch, cargo test $tests does not pass" >&2; exit 1; }
  sound[$tests]=1
done

survived=0
for patch in "${chosen[@]}"; do
  name=$(basename "$patch" .patch)
  patched "$root/$patch"
  code=0; run "$patch" || code=$?
  case $code in
    1) echo "caught    $name: $(head -n 1 "$patch")" ;;
    0) echo "SURVIVED  $name: $(head -n 1 "$patch")"; survived=$((survived + 1)) ;;
    *) tail -n 30 "$log" >&2; echo "NO TEST   $name does not build, or its test is gone"; survived=$((survived + 1)) ;;
  esac
  patched -R "$root/$patch"
done
echo "mutants: $((${#chosen[@]} - survived)) of ${#chosen[@]} caught"
[ "$survived" = 0 ]
