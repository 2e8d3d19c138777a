#!/usr/bin/env bash
# The figures of benches/, in the release profile, against the real servers. Arguments go to the harness.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh build
. scripts/stack/export.sh
exec cargo bench --locked --bench '*' -- "$@"
