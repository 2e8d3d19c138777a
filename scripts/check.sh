#!/usr/bin/env bash
# What every change must pass.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --check
# Modules named by a macro, and a program that is no target: cargo fmt does not see them.
rustfmt --check src/nodes/*.rs tests/data/bits.rs
cargo clippy --all-targets --locked -- -D warnings
if command -v shellcheck >/dev/null; then
  mapfile -t scripts < <(grep -rlE '^#(!/usr/bin/env bash| shellcheck shell=bash)' scripts .ci)
  shellcheck "${scripts[@]}"
else
  echo "shellcheck is not installed: the scripts were not looked at" >&2
fi
if cargo deny --version >/dev/null 2>&1; then cargo deny --offline check bans licenses sources; fi
scripts/test.sh
