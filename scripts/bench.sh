#!/usr/bin/env bash
# The figures of benches/, in the release profile, against the servers of `make up`, in databases and folders of their own.
#   scripts/bench.sh                    all of them
#   scripts/bench.sh control latency    some: start nodes import replay admit control full latency recovery
#                                       stream peers successor known
# BENCH_RUNS, BENCH_JOBS, BENCH_ROUNDS, BENCH_SAMPLES, BENCH_ROWS … are in docs/benchmarks.md. A peer that cannot be
# installed is left out, with a line.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh build
. scripts/stack/export.sh
where() { bash -c '. scripts/stack/lib.sh; printf "%s\n" "$state" "$cache"'; }
mapfile -t where < <(where)
export BENCH_FOLDER=${where[0]}/bench
BENCH_CLICKHOUSE_PID=$(cat "${where[0]}/clickhouse/pid" 2>/dev/null || true)
export BENCH_CLICKHOUSE_PID
cache=${where[1]}/bench
mkdir -p "$cache"

unset BENCH_GRAPHILE BENCH_PYTHON BENCH_KAFKA_STREAMS BENCH_BYTEWAX
log=$cache/install.log
# Installed is what has its mark: one that was cut short is made anew.
peer() {
  local home=$cache/$1 name=$2; shift 2
  [ -e "$home/ok" ] || {
    echo "bench: fetching $name (once)" >&2
    rm -rf "$home"; mkdir -p "$home"
    "$@" "$home" </dev/null >"$log" 2>&1 && touch "$home/ok" || { echo "bench: without $name, see $log" >&2; return 1; }
  }
}
graphile() { command -v node && (cd "$1" && npm install --no-audit --no-fund graphile-worker@0.17.3 pg@8.23.1); }
talib() { python3 -m venv "$1" && "$1/bin/pip" install -q --only-binary :all: TA-Lib==0.6.8 numpy==2.4.6; }
# -C: a file whose checksum is wrong is an error, not a warning.
streams() { command -v java && mvn -q -B -C -f scripts/bench/kafka-streams/pom.xml dependency:copy-dependencies -DoutputDirectory="$1"; }
bytewax() { python3 -m venv "$1" && "$1/bin/pip" install -q --only-binary :all: bytewax==0.21.1 confluent-kafka==2.16.1; }
! peer graphile-0.17.3 graphile-worker graphile || export BENCH_GRAPHILE=$cache/graphile-0.17.3
! peer talib-0.6.8 TA-Lib talib || export BENCH_PYTHON=$cache/talib-0.6.8/bin/python
! peer kafka-streams-4.1.2 "Kafka Streams" streams || export BENCH_KAFKA_STREAMS=$cache/kafka-streams-4.1.2
! peer bytewax-0.21.1 bytewax bytewax || export BENCH_BYTEWAX=$cache/bytewax-0.21.1/bin/python

exec cargo bench --locked --bench speed -- "$@"
