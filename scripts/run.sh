#!/usr/bin/env bash
# From a bare machine to published results: servers, schema, import, the fixture three ways, run. Again: what is there is found, not made anew.
#   make run                                        the fixture and fixtures/stocks_monthly.csv
#   make run DATA=file.csv FLAGS="--time-column …"  another file, with the flags of `finaz snapshot import`
set -euo pipefail
data=${DATA:-} flags=()
die() { echo "make run: $*" >&2; exit 2; }
if [ -n "$data" ]; then
  [ -f "$data" ] || die "DATA=$data is not a file"
  data=$(realpath -- "$data")
fi
# Quotes count, nothing is executed: --time-format '%Y-%m-%d %H:%M' is one flag with its value.
if [ -n "${FLAGS:-}" ]; then
  xargs true <<<"$FLAGS" || die "FLAGS=$FLAGS cannot be split into words"
  mapfile -d '' -t flags < <(xargs printf '%s\0' <<<"$FLAGS")
fi
cd "$(dirname "$0")/.."
scripts/install.sh build
. scripts/stack/export.sh

cargo build --release --locked
finaz() {
  local word line='$ finaz'
  for word; do
    case $word in *[!A-Za-z0-9_./:=@%+-]*) line+=" '$word'" ;; *) line+=" $word" ;; esac
  done
  printf '\n%s\n' "$line" >&2
  "${CARGO_TARGET_DIR:-target}/release/finaz" "$@"
}

finaz db migrate
if [ -n "$data" ]; then
  # btc-perp_1m.csv.gz is btc-perp_1m
  name=$(basename "$data"); name=${name%.gz}; name=${name%.*}; name=${name//[^A-Za-z0-9._-]/-}
  finaz snapshot import "$data" --name "$name" "${flags[@]}"
  finaz run-once --flow manifests/any.yaml --snapshot "$name"
else
  finaz snapshot import fixtures/fixture.snapshot.01.jsonl --name fixture.snapshot.01
  finaz snapshot import fixtures/stocks_monthly.csv --name stocks.monthly --instrument-column symbol \
    --time-column date --close-column price --time-format '%b %e %Y' --tz UTC
  finaz parity --flow manifests/fixture.01_A_feature.yaml --faults fixtures/fixture.faults.01.yaml
  finaz run-once --flow manifests/fixture.01_A_feature.yaml --snapshot fixture.snapshot.01
  finaz run-once --flow manifests/stocks_monthly.yaml --snapshot stocks.monthly
fi
