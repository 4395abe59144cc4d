#!/usr/bin/env bash
# nginx asks Postern whether requests may pass, and forwards them itself; all on loopback. A status that nginx
# cannot pass on, such as 503, becomes 500 there.
#
#   examples/nginx/run.sh           start everything, say where it is, stay until Ctrl-C
#   examples/nginx/run.sh --check   take the tour on free ports, print what was expected and seen, end
#
# nginx must be there (Debian: nginx). The program is built, or named by POSTERN. Exit codes: 0 ended by Ctrl-C or the tour went as
# expected, 1 the tour found a difference, 2 the command line is not understood, 3 it cannot run here.

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
