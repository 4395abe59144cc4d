#!/usr/bin/env bash
# Postern beside one service, which can be reached through it alone and is told who calls in a signed statement; all on this
# machine.
#
#   examples/sidecar/run.sh           start everything, say where it is, stay until Ctrl-C
#   examples/sidecar/run.sh --check   take the tour on free ports, print what was expected and seen, end
#
# openssl must be there. The program is built, or named by POSTERN. Exit codes: 0 ended by Ctrl-C or the tour went as expected, 1
# the tour found a difference, 2 the command line is not understood, 3 it cannot run here.

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
step "the service gets a signed statement of who calls" visitor \
    "$("$POSTERN" token --decode --token "$statement" 2>/dev/null | sed -n 's/^ *sub  *"\(.*\)".*/\1/p')"
step "whose key is published" 1 "$(curl -s "$url/.well-known/postern/jwks.json" |
    python3 -c 'import json, sys; print(len(json.load(sys.stdin)["keys"]))')"
step "nobody gets one by bringing it" "" "$(seen x-postern-assertion -H "X-Postern-Assertion: $statement" "$url/public/x")"
tour_of_front 000
finish
