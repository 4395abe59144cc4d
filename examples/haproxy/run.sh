#!/usr/bin/env bash
# HAProxy checks requests with Postern and forwards them itself. All on loopback.
#
#   examples/haproxy/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/haproxy/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs HAProxy (Debian: haproxy). The program is built, unless POSTERN names one. Exit codes: 0
# ended by Ctrl-C, or the self-check found no difference; 1 the self-check found a difference; 2
# invalid command line; 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

PATH=$PATH:/usr/sbin
need haproxy "the package haproxy"
begin "$@"
front 8080
start haproxy env -C "$work" haproxy -db -f haproxy.cfg
ready "$url/"
[[ -n $check ]] || stay_at_front HAProxy
tour_of_front 503
finish
