#!/usr/bin/env bash
# What takes too long for each change: 20,000 random cases of the stream without servers, 200 with the real ones, five
# minutes of random faults, every point of the program under every fault. SEED draws another campaign.
set -euo pipefail
cd "$(dirname "$0")/.."
PROPTEST_CASES=${PROPTEST_CASES:-20000} cargo test --locked --lib any_log_cut_anywhere
STREAM_CASES=${STREAM_CASES:-200} scripts/test.sh --test live stream_property -- --nocapture
. scripts/stack/export.sh
cargo run --locked -q -- drill chaos --seed "${SEED:-$RANDOM}" --duration "${DURATION:-5m}"
cargo run --locked -q -- drill kill-matrix --seed "${SEED:-$RANDOM}"
cargo run --release --locked -q -- drill sim --seed "${SEED:-$RANDOM}" --seeds "${SEEDS:-100000}"
CONFORMANCE_CASES=${CONFORMANCE_CASES:-2000} scripts/test.sh --test live the_real_store_answers_as_the_model
