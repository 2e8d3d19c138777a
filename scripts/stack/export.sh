# shellcheck shell=bash
# Sourced by what runs finaz against the stack: brings it up when it is not, and sets its four settings.
scripts/stack/status >/dev/null || scripts/up.sh
settings=$(scripts/stack/env)
# Any other FINAZ_* of the caller (a production URL, say) must not reach what is run here; but it is the same stack.
for name in "${!FINAZ@}"; do
  case $name in STACK_STATE | STACK_CACHE) ;; *) unset "$name" ;; esac
done
while IFS='=' read -r name value; do export "$name=$value"; done <<<"$settings"
