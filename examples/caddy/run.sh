#!/usr/bin/env bash
# Caddy asks Postern whether requests may pass, and forwards them itself; all on loopback.
#
#   examples/caddy/run.sh           start everything, say where it is, stay until Ctrl-C
#   examples/caddy/run.sh --check   take the tour on free ports, print what was expected and seen, end
#
# Caddy must be there (Debian: caddy). The program is built, or named by POSTERN. Exit codes: 0 ended by Ctrl-C or the tour went as
# expected, 1 the tour found a difference, 2 the command line is not understood, 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

PATH=$PATH:/usr/sbin
need caddy "the package caddy"
begin "$@"
front 8080
start caddy env HOME="$work/run" caddy run --config "$work/Caddyfile" --adapter caddyfile
ready "$url/"
[[ -n $check ]] || stay_at_front Caddy
tour_of_front 502
finish
