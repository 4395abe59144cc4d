#!/usr/bin/env bash
# Traefik asks Postern whether requests may pass, and forwards them itself; all on loopback.
#
#   examples/traefik/run.sh           start everything, say where it is, stay until Ctrl-C
#   examples/traefik/run.sh --check   take the tour on free ports, print what was expected and seen, end
#
# Traefik must be there; no package of Debian brings it, so that this example is checked nowhere but by hand. The program is built, or named by POSTERN. Exit codes: 0 ended by Ctrl-C or the tour went as
# expected, 1 the tour found a difference, 2 the command line is not understood, 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

PATH=$PATH:/usr/sbin
need traefik "a download of its makers: no package brings it"
begin "$@"
front 8080
mv "$work/routes.yaml" "$work/run/"
start traefik env -C "$work" traefik --configFile=traefik.yaml
ready "$url/"
[[ -n $check ]] || stay_at_front Traefik
tour_of_front 500
finish
