#!/usr/bin/env bash
# The three boxes of a 3.x path as three processes: the edge asks the second, by external authorization, who is calling, and forwards to
# the third beside the service, which looks again and decides whether they may. Over Unix sockets, which are closed to everybody else.
# What it costs beside one process (examples/fused) is what `postern lab run --scenario path-costs` measures.
#
#   examples/3x-split/run.sh           start everything, say where it is, stay until Ctrl-C
#   examples/3x-split/run.sh --check   take the tour on free ports, print what was expected and seen, end
#
# The program is built, or named by POSTERN. Exit codes: 0 ended by Ctrl-C or the tour went as expected, 1 the tour found a
# difference, 2 the command line is not understood, 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

begin "$@"
ports 9912 9913
front 8080
serve authorization
serve edge
ready "http://127.0.0.1:$(port 9913)/readyz"
ready "$url/"
[[ -n $check ]] || stay_at_front "three processes of Postern"
tour_of_front 503
# The third is still there, and so is whoever has come past the edge.
past=(--unix-socket "$work/run/authorization.sock")
visitor="Authorization: Bearer $(token visitor)"
step "past the edge a token is asked for as well" 401 "$(status "${past[@]}" http://app/x)"
step "and nobody is who they say they are" 401 \
    "$(status "${past[@]}" -H 'X-Forwarded-User: operator' -H 'X-Auth-Request-User: operator' http://app/x)"
step "the rules are the same" 403 "$(status "${past[@]}" -H "$visitor" http://app/admin/x)"
step "and to others the way is closed" srw------- "$(stat -c %A "$work/run/authorization.sock")"
finish
