#!/usr/bin/env bash
# HAProxy asks Postern whether requests may pass, and forwards them itself; all on loopback.
#
#   examples/haproxy/run.sh           start everything, say where it is, stay until Ctrl-C
#   examples/haproxy/run.sh --check   take the tour on free ports, print what was expected and seen, end
#
# HAProxy must be there (Debian: haproxy). The program is built, or named by POSTERN. Exit codes: 0 ended by Ctrl-C or the tour went as
# expected, 1 the tour found a difference, 2 the command line is not understood, 3 it cannot run here.

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
