#!/usr/bin/env bash
# What `make up` does: installs what is missing, then starts the three servers.
set -euo pipefail
cd "$(dirname "$0")"
./install.sh
exec stack/up
