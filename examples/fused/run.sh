#!/usr/bin/env bash
# One process in front of a service, for JWTs and opaque tokens of a provider; all on loopback.
#
#   examples/fused/run.sh           start everything, say where it is, stay until Ctrl-C
#   examples/fused/run.sh --check   take the tour on free ports, print what was expected and seen, end
#
# The program is built, or named by POSTERN. Exit codes: 0 ended by Ctrl-C or the tour went as expected, 1 the tour found a
# difference, 2 the command line is not understood, 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

begin "$@"
front 8080
ready "$url/"
[[ -n $check ]] || stay_at_front "one process of Postern"
opaque="Authorization: Bearer $(token opaque)"
step "an opaque token is good as well" 200 "$(status -H "$opaque" "$url/x")"
step "the service hears who it is" opaque "$(seen x-forwarded-user -H "$opaque" "$url/x")"
for _ in {1..20}; do status -H "$opaque" "$url/x" >/dev/null; done
step "the provider was asked once about it" 1 "$(curl -s "http://127.0.0.1:$(port 9911)/metrics" |
    sed -n 's/^postern_authority_questions_total{authority="opaque",result="good"} //p')"
step "one that is cut is known to be none without asking" 401 "$(status -H "${opaque%?}" "$url/x")"
step "and where only the issuer's word counts it is not enough" 403 "$(status -H "$opaque" "$url/admin")"
tour_of_front 000
finish
