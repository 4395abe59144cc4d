#!/usr/bin/env bash
# Caddy checks requests with Postern and forwards them itself. All on loopback.
#
#   examples/caddy/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/caddy/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs Caddy (Debian: caddy). The program is built, unless POSTERN names one. Exit codes: 0 ended
# by Ctrl-C, or the self-check found no difference; 1 the self-check found a difference; 2 invalid
# command line; 3 it cannot run here.

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
