#!/usr/bin/env bash
# One process in front of a service, for JWTs and opaque tokens of a provider. All on loopback.
#
#   examples/fused/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/fused/run.sh --check   run the self-check on free ports, print the results, end
#
# The program is built, unless POSTERN names one. Exit codes: 0 ended by Ctrl-C, or the self-check
# found no difference; 1 the self-check found a difference; 2 invalid command line; 3 it cannot run
# here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

begin "$@"
front 8080
ready "$url/"
[[ -n $check ]] || stay_at_front "one process of Postern"
opaque="Authorization: Bearer $(token opaque)"
step "an opaque token is accepted as well" 200 "$(status -H "$opaque" "$url/x")"
step "the service receives the caller's name" opaque "$(seen x-forwarded-user -H "$opaque" "$url/x")"
for _ in {1..20}; do status -H "$opaque" "$url/x" >/dev/null; done
step "the token was introspected once" 1 "$(curl -s "http://127.0.0.1:$(port 9911)/metrics" |
    sed -n 's/^postern_token_authority_requests_total{authority="opaque",result="good"} //p')"
step "a truncated token is refused without introspection" 401 "$(status -H "${opaque%?}" "$url/x")"
step "and a route that requires a JWT refuses the opaque token" 403 "$(status -H "$opaque" "$url/admin")"
tour_of_front 000
finish
