# shellcheck shell=bash
# Sourced by what runs finaz against the stack: brings it up when it is not, and sets its four settings.
# Any other FINAZ_* of the caller (a production URL, say) must not reach what is run here.
scripts/stack/status >/dev/null || scripts/up.sh
settings=$(scripts/stack/env)
unset "${!FINAZ@}"
while IFS='=' read -r name value; do export "$name=$value"; done <<<"$settings"
