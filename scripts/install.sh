#!/usr/bin/env bash
# Installs what the stack needs and this machine lacks (Debian packages, as root); says what to type where it cannot.
# `install.sh build` looks for Rust and a C compiler as well. Nothing missing: does nothing.
. "$(dirname "$0")/stack/lib.sh"

want() { command -v "$1" >/dev/null; }
# What is missing, as names of Debian packages.
look() {
  packages=()
  find_postgres >/dev/null || packages+=("$(postgres_package)")
  find_java >/dev/null || packages+=("$(first_package openjdk-17-jre-headless default-jre-headless)")
  has_libs || want mvn || packages+=(maven)
  has_venv || find_python >/dev/null || packages+=(python3 python3-venv)
  want openssl || packages+=(openssl)
  want flock && want setsid && { ! is_root || want runuser; } || packages+=(util-linux)
  [ "$for" != build ] || want cc || packages+=(gcc libc6-dev)
}
# The data folder is read only by the version that made it.
postgres_package() {
  local made; made=$(cat "$state/postgres/version" 2>/dev/null || true)
  printf '%s\n' "postgresql${made:+-$made}"
}
first_package() {
  local name
  for name; do [ -z "$(apt-cache madison "$name" 2>/dev/null)" ] || { printf '%s\n' "$name"; return; }; done
  printf '%s\n' "$1"
}

for=${1:-stack}
if [ "$for" = build ]; then
  rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
  have=$(cd "$root" && rustc --version 2>/dev/null | cut -d ' ' -f 2 || true)
  want cargo && [ -n "$have" ] && [ "$(printf '%s\n' "$rust" "$have" | sort -V | head -n 1)" = "$rust" ] ||
    die "cargo and rustc $rust or newer are needed${have:+ (found $have)}: install them with rustup, put ~/.cargo/bin on PATH, and try again"
fi
look
[ ${#packages[@]} -gt 0 ] || exit 0

want apt-get || die "missing, as Debian calls them: ${packages[*]}. This machine has no apt-get: install them its own way (PostgreSQL 15 or newer, Java 17 or newer, Maven, Python 3.9 or newer with venv, openssl, util-linux)"
is_root || die "missing: ${packages[*]}. Type: sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages[*]}"

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp) quiet=
trap 'rm -f "$log" ${quiet:+"$quiet"}' EXIT
apt() {
  apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; die "apt-get $1 failed; still missing: ${packages[*]}"; }
}
say "installing ${packages[*]}"
apt update
look             # now that there is a package list
# Debian's package makes and starts a server of its own on 5432, unless told not to: ours is the only one wanted here.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  quiet=/etc/postgresql-common/createcluster.d/finaz.conf
  mkdir -p "$(dirname "$quiet")"
  (umask 022; echo 'create_main_cluster = false' >"$quiet")
  chmod 755 "$(dirname "$quiet")" /etc/postgresql-common
fi
apt install -y --no-install-recommends "${packages[@]}"
look
[ ${#packages[@]} = 0 ] || die "installed, but still not found: ${packages[*]}"
