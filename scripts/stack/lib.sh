# shellcheck shell=bash disable=SC2034  # what is set here is used by those who source it
# Sourced by every script of the stack: where the state lies, which ports are ours, how a part is started and ended.
# A sourcing script is STACK_STATE=DIR private: everything it writes lies under DIR, except what is installed (STACK_CACHE).
set -euo pipefail
umask 077
stack=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$stack/../.." && pwd -P)
# The caller's own client settings must not reach initdb, psql or the server.
unset "${!PG@}"

: "${STACK_KAFKA_VERSION:=4.1.2}"
: "${STACK_KAFKA_JVM:=-Xms64m -Xmx256m -Xss256k -XX:+UseSerialGC -XX:TieredStopAtLevel=1}"

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
is_root() { [ "$(id -u)" = 0 ]; }

# The first folder on the way to $1 that other users cannot pass; nothing when they can.
private_folder() {
  local at=$1
  while [ "$at" != / ]; do
    [ ! -e "$at" ] || (( 8#$(stat -L -c %a "$at") & 1 )) || { printf '%s\n' "$at"; return; }
    at=$(dirname "$at")
  done
}

# As root the PostgreSQL server runs as the user postgres, who must be able to reach its data: then a checkout under a
# private folder keeps its state elsewhere.
default_state() {
  if is_root && [ -n "$(private_folder "$root")" ]; then
    printf '/var/lib/finaz-%s\n' "$(printf %s "$root" | sha256sum | cut -c 1-12)"
  else
    printf '%s/.state\n' "$root"
  fi
}

home=$(default_state)
state=${STACK_STATE:-$home}
cache=${STACK_CACHE:-$home/cache}
# An own instance (STACK_STATE) leaves the well-known ports to the checkout's main one.
own=; [ "$state" = "$home" ] || own=1
for at in "$state" "$cache"; do
  # A comma, a colon, a pipe would mean something to Kafka's configuration or to a class path.
  [[ $at == /* && $at != *[!A-Za-z0-9/._+@=\ -]* ]] ||
    die "the state cannot lie in '$at': STACK_STATE and STACK_CACHE must be absolute paths of letters, digits and any of . _ + @ = - and space"
done
state=$(realpath -m -- "$state") cache=$(realpath -m -- "$cache")
certs=$state/certs

# Makes the state folder, the password and the list of ports. Called by every script that starts something.
prepare() {
  local at
  if is_root; then
    at=$(private_folder "$(dirname "$state")")
    [ -z "$at" ] || die "postgres: the user postgres cannot go through $at: set STACK_STATE to a path outside of it"
  fi
  mkdir -p "$state" "$cache"
  [ -O "$state" ] || die "$state belongs to another user"
  if [ ! -e "$state/password" ] && [ ! -e "$state/ports" ]; then
    # STACK_STATE=/home by mistake: nothing there is ours to change.
    at=$(find "$state" -mindepth 1 -maxdepth 1 \
      ! -name cache ! -name artifacts ! -name certs ! -name lock ! -name 'ports*' ! -name 'password*' -print -quit)
    [ -z "$at" ] || die "$state is not empty and not a state folder ($at): name another one in STACK_STATE"
  fi
  exec 8>"$state/lock"; flock 8
  [ -e "$state/ports" ] || : >"$state/ports"
  if [ ! -s "$state/password" ]; then
    [ ! -e "$state/postgres/data" ] ||
      die "$state/password is gone, and the data in $state/postgres was made with it: bring it back, or remove $state"
    od -An -tx1 -N 24 /dev/urandom | tr -d ' \n' >"$state/password.new"
    mv "$state/password.new" "$state/password"
  fi
  exec 8>&-
  ! is_root || chmod 711 "$state"
}

password() { cat "$state/password"; }

# One up or down of a part at a time. Children must not inherit the lock: start them with 9>&-.
lock() { mkdir -p "$state/$1"; exec 9>"$state/$1/lock"; flock 9; }

# What was installed is shared by all instances: one installs, the others wait.
lock_cache() { exec 7>"$cache/$1.lock"; flock 7; }
unlock_cache() { exec 7>&-; }

# ---- ports: chosen once, kept in $state/ports, changed only when somebody else sits on them ----

# port NAME: the remembered number, or nothing.
port() { [ ! -e "$state/ports" ] || sed -n "s/^$1=//p" "$state/ports"; }

# Listening sockets of this machine, read from the kernel: needs no ss, no lsof.
port_taken() {
  { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true; } |
    awk -v port="$(printf ':%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }'
}

remember_port() {
  { grep -v "^$1=" "$state/ports" || true; printf '%s=%s\n' "$1" "$2"; } >"$state/ports.new"
  mv "$state/ports.new" "$state/ports"
}

# claim_port NAME DEFAULT [FIXED]: sets $claimed. FIXED is the caller's wish and is not negotiable.
claim_port() {
  local name=$1 default=$2 fixed=${3:-} old
  exec 8>"$state/lock"; flock 8
  old=$(port "$name")
  if [ -n "$fixed" ]; then
    claimed=$fixed
    ! port_taken "$claimed" || die "port $claimed (asked for as STACK_$name) is taken"
  else
    claimed=${old:-$default}
    [ -z "$own" ] || [ -n "$old" ] || claimed=$(free_port)
    ! port_taken "$claimed" || claimed=$(free_port)
  fi
  [ "$claimed" = "$old" ] || remember_port "$name" "$claimed"
  [ -z "$old" ] || [ -n "$fixed" ] || [ "$claimed" = "$old" ] || say "port $old is taken by another program: $name is now $claimed"
  [ -n "$old" ] || [ -n "$own$fixed" ] || [ "$claimed" = "$default" ] ||
    say "port $default is taken by another program: $name is $claimed"
  exec 8>&-
}

# Below the range that the kernel hands out for outgoing connections.
free_port() {
  local try
  for _ in {1..500}; do
    try=$((20000 + RANDOM % 12000))
    port_taken "$try" || grep -q "=$try\$" "$state/ports" || { printf '%s\n' "$try"; return; }
  done
  die "no free port between 20000 and 31999"
}

# Somebody was faster between our look and the server's bind: the next claim chooses anew.
bind_failed() { grep -qi 'address already in use' "$1"; }
forget_ports() {
  local name
  for name in "$@"; do remember_port "$name" "$(free_port)"; done
}

# ---- processes ----

# alive PIDFILE WORD: the process lives and is ours (after a crash its number may belong to another program).
alive() {
  local pid words
  pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && [ -r "/proc/$pid/cmdline" ] || return 1
  mapfile -d '' -t words 2>/dev/null <"/proc/$pid/cmdline" || return 1
  [[ " ${words[*]} " == *" $2 "* ]]
}

# A fresh log for this start; the one before is kept.
fresh_log() { [ ! -s "$1" ] || mv -f "$1" "$1.1"; : >"$1"; }

# until_ready SECONDS PID LOG CMD...: polls CMD. Fails when the process ends or time is up, and shows the log's end,
# unless the reason is a port taken.
# Not alive(): between fork and exec the process still has the command line of this script.
until_ready() {
  local end=$((SECONDS + $1)) pid=$2 log=$3 why; shift 3
  until "$@"; do
    why=
    grep -qs '^State:.[^ZX]' "/proc/$pid/status" || why="ended while starting"
    [ $SECONDS -lt $end ] || why="not ready in time"
    if [ -n "$why" ]; then
      bind_failed "$log" || { tail -n 20 "$log" >&2; say "$why, see $log"; }
      return 1
    fi
    sleep 0.05
  done
}

# stop PIDFILE WORD SECONDS [SIGNAL]: SIGTERM (or SIGNAL), then SIGKILL when time is up. Not running is success.
stop() {
  local pid end=$((SECONDS + $3))
  alive "$1" "$2" || { rm -f "$1"; return 0; }
  pid=$(cat "$1")
  kill -s "${4:-TERM}" "$pid"
  kill -s CONT "$pid"            # a stopped process hears nothing
  while alive "$1" "$2"; do
    [ $SECONDS -lt $end ] || { say "pid $pid did not end in $3 s: SIGKILL"; kill -s KILL "$pid"; sleep 0.2; break; }
    sleep 0.05
  done
  rm -f "$1"
}

# ---- does a part answer? Asked in its own protocol: a stopped process still accepts connections ----

# ask PORT REQUEST BYTES: sends REQUEST (printf escapes), prints the first BYTES of the answer.
ask() {
  # shellcheck disable=SC2016  # expanded by the inner shell
  timeout 3 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" && printf "$2" >&3 && head -c "$3" <&3' ask "$@" 2>/dev/null | tr -d '\0'
}
postgres_answers() { "$(find_postgres)/pg_isready" -q -h 127.0.0.1 -p "$(port PG_PORT)" -t 3; }
# ApiVersions, version 0, correlation id "finz": the id comes back.
kafka_answers() {
  [[ "$(ask "$(port KAFKA_PORT)" '\0\0\0\017\0\022\0\0finz\0\005stack' 8)" == *finz* ]]
}
clickhouse_answers() {
  [[ "$(ask "$(port CLICKHOUSE_PORT)" 'GET /ping HTTP/1.0\r\n\r\n' 12)" == "HTTP/1.1 200" ]]
}

# already_up PART WORD: for a part that runs: says so and succeeds, or dies when it does not answer.
already_up() {
  local pidfile=$state/$1/pid end=$((SECONDS + 10))
  alive "$pidfile" "$2" || return 1
  until "$1_answers"; do
    alive "$pidfile" "$2" || return 1
    [ $SECONDS -lt $end ] ||
      die "$1: process $(cat "$pidfile") runs but does not answer (stopped, or overloaded?): end it with scripts/stack/${1/postgres/pg}-down"
    sleep 0.2
  done
  say "$1: already running, pid $(cat "$pidfile")"
}
# The word in a part's command line that makes it ours.
word() {
  case $1 in
    postgres) printf '%s\n' "$state/postgres/data" ;;
    kafka) printf '%s\n' "$state/kafka/server.properties" ;;
    clickhouse) printf '%s\n' "$state/clickhouse/data" ;;
  esac
}

# ---- the programs that the parts need: each prints a path, or fails ----

# The folder of initdb and postgres, 15 or newer; the version that made the data, when there is any.
find_postgres() {
  local bin made='' version
  [ ! -r "$state/postgres/version" ] || made=$(cat "$state/postgres/version")
  while read -r bin; do
    [ -x "$bin/postgres" ] && [ -x "$bin/initdb" ] || continue
    version=$("$bin/postgres" -V 2>/dev/null | sed -n 's/^postgres (PostgreSQL) \([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 15 ] && { [ -z "$made" ] || [ "$version" = "$made" ]; } || continue
    printf '%s\n' "$bin"; return 0
  done < <(
    [ -z "${STACK_PG_BIN:-}" ] || printf '%s\n' "$STACK_PG_BIN"
    printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin | sort -rV
    ! command -v postgres >/dev/null || dirname "$(readlink -f "$(command -v postgres)")"
  )
  return 1
}

# java 17 or newer. The release file beside it is read first: starting a JVM only to ask costs 0.1 s.
find_java() {
  local java version
  while read -r java; do
    [ -x "$java" ] || continue
    version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$(dirname "$(readlink -f "$java")")/../release" 2>/dev/null || true)
    [ -n "$version" ] || version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1 || true)
    [ "${version:-0}" -ge 17 ] || continue
    printf '%s\n' "$java"; return 0
  done < <(
    command -v java || true
    [ -z "${JAVA_HOME:-}" ] || printf '%s\n' "$JAVA_HOME/bin/java"
    printf '%s\n' /usr/lib/jvm/*/bin/java
  )
  return 1
}

# Python 3.9 or newer that can make a virtual environment.
find_python() {
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || continue
    command -v "$python"; return 0
  done
  return 1
}

libs=$cache/kafka-$STACK_KAFKA_VERSION-$(cksum <"$stack/kafka/pom.xml" | cut -d ' ' -f 1)
requirements=$stack/clickhouse/requirements.txt
venv=$cache/clickhouse-$(cksum <"$requirements" | cut -d ' ' -f 1)
has_libs() { [ -e "$libs" ]; }
has_venv() { [ -e "$venv/ok" ] && "$venv/bin/python" -c '' 2>/dev/null; }

missing() { die "$1 was not found: run scripts/install.sh (Debian), or install $2 and try again"; }
