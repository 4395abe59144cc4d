#!/usr/bin/env bash
# The three boxes of a 3.x path as three processes. The edge queries the second, by external
# authorization, for the caller's identity. It forwards to the third, beside the service, which
# verifies the token again and authorizes the request. They use Unix sockets that no other user can
# open. `postern lab run --scenario path-costs` measures the cost compared with one process
# (examples/fused).
#
#   examples/3x-split/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/3x-split/run.sh --check   run the self-check on free ports, print the results, end
#
# The program is built, unless POSTERN names one. Exit codes: 0 ended by Ctrl-C, or the self-check
# found no difference; 1 the self-check found a difference; 2 invalid command line; 3 it cannot run
# here.

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
# The third still runs, and a client may get past the edge.
past=(--unix-socket "$work/run/authorization.sock")
visitor="Authorization: Bearer $(token visitor)"
step "past the edge a token is required as well" 401 "$(status "${past[@]}" http://app/x)"
step "and identity headers of a client are not trusted" 401 \
    "$(status "${past[@]}" -H 'X-Forwarded-User: operator' -H 'X-Auth-Request-User: operator' http://app/x)"
step "the rules are the same" 403 "$(status "${past[@]}" -H "$visitor" http://app/admin/x)"
step "and other users cannot open the socket" srw------- "$(stat -c %A "$work/run/authorization.sock")"
finish
