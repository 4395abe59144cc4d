#!/usr/bin/env bash
# nginx checks requests with Postern and forwards them itself. All on loopback. nginx turns a status
# that it cannot pass on, such as 503, into 500.
#
#   examples/nginx/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/nginx/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs nginx (Debian: nginx). The program is built, unless POSTERN names one. Exit codes: 0 ended
# by Ctrl-C, or the self-check found no difference; 1 the self-check found a difference; 2 invalid
# command line; 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

PATH=$PATH:/usr/sbin
need nginx "the package nginx"
begin "$@"
front 8080
start nginx nginx -p "$work" -c "$work/nginx.conf"
ready "$url/"
[[ -n $check ]] || stay_at_front nginx
tour_of_front 500
finish
