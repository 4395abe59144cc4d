#!/usr/bin/env bash
# The three boxes of a 3.x path as three processes: the edge, who is calling, and whether they may; from one to the next over Unix
# sockets, which are closed to everybody else. What it costs beside one process (examples/fused) is
# what dev/bench-paths measures.
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
tour_of_front 502
finish
