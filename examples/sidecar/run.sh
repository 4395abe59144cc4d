#!/usr/bin/env bash
# Postern beside one service, which clients reach only through it. The service receives the caller's
# identity in a signed assertion. All on this machine.
#
#   examples/sidecar/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/sidecar/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs openssl. The program is built, unless POSTERN names one. Exit codes: 0 ended by Ctrl-C, or
# the self-check found no difference; 1 the self-check found a difference; 2 invalid command line; 3
# it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

need openssl "the package openssl"
begin "$@"
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/run/assertion.pem" 2>/dev/null
sed -i "s#unix:run/#unix:$work/run/#" "$work/postern.toml"
start application "$POSTERN" echo --reflect --unix "$work/run/application.sock"
front 8080
ready "$url/"
[[ -n $check ]] || stay_at_front "Postern beside the service"
statement=$(seen x-postern-assertion -H "Authorization: Bearer $(token visitor)" "$url/x")
step "the service receives a signed assertion of the caller" visitor \
    "$("$POSTERN" token --decode --token "$statement" 2>/dev/null | sed -n 's/^ *sub  *"\(.*\)".*/\1/p')"
step "its key is published" 1 "$(curl -s "$url/.well-known/postern/jwks.json" |
    python3 -c 'import json, sys; print(len(json.load(sys.stdin)["keys"]))')"
step "an assertion of a client is removed" "" "$(seen x-postern-assertion -H "X-Postern-Assertion: $statement" "$url/public/x")"
tour_of_front 000
finish
