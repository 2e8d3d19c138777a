#!/usr/bin/env bash
# What takes too long for each change: 20,000 random cases of the stream without servers, 200 with the real ones.
set -euo pipefail
cd "$(dirname "$0")/.."
PROPTEST_CASES=${PROPTEST_CASES:-20000} cargo test --locked --lib any_log_cut_anywhere
STREAM_CASES=${STREAM_CASES:-200} scripts/test.sh --test live stream_property -- --nocapture
