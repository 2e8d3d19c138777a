#!/usr/bin/env bash
# Every test; the live ones fail, not skip, when a server is away. Arguments go to cargo test.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh build
. scripts/stack/export.sh
FINAZ_LIVE=required exec cargo test --locked --no-fail-fast "$@"
