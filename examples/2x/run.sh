#!/usr/bin/env bash
# The two boxes of a 2.x path: an edge that terminates TLS (HAProxy), and behind a Unix socket
# Postern instead of oauth-proxy. All on loopback.
#
#   examples/2x/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/2x/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs HAProxy and openssl (Debian: haproxy, openssl). The program is built, unless POSTERN names
# one. Exit codes: 0 ended by Ctrl-C, or the self-check found no difference; 1 the self-check found
# a difference; 2 invalid command line; 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"
# shellcheck source=examples/shared/front.bash
source "$ROOT/examples/shared/front.bash"

PATH=$PATH:/usr/sbin
need haproxy "the package haproxy"
need openssl "the package openssl"
begin "$@"
front 8080
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -keyout "$work/run/key.pem" -out "$work/run/certificate.pem" 2>/dev/null
cat "$work/run/certificate.pem" "$work/run/key.pem" >"$work/run/edge.pem"
start haproxy env -C "$work" haproxy -db -f haproxy.cfg
url=https://127.0.0.1:$(port 8080)
ready "$url/"
[[ -n $check ]] || stay_at_front "HAProxy and Postern"
step "the edge speaks HTTP/2 and Postern sees the client's address" 127.0.0.1 \
    "$(seen x-forwarded-for --http2 -H "Authorization: Bearer $(token visitor)" "$url/x")"
step "and that the client used TLS" https "$(seen x-forwarded-proto -H "Authorization: Bearer $(token visitor)" "$url/x")"
tour_of_front 503
finish
