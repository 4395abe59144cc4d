# shellcheck shell=bash
# Shared parts of the examples: their command line, a work folder, programs that end with them, and
# the lines of a self-check. Each example sources this and calls `begin "$@"` first.

set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
NAME=$(basename "$HERE")

fail() {
    printf '%s: %s\n' "$NAME" "$*" >&2
    exit 3
}

# need PROGRAM SOURCE: ends the example with exit code 3 if a program is missing.
need() {
    command -v "$1" >/dev/null || fail "$1 is missing; install $2"
}

# begin ARGUMENT...: reads the command line (`check` is set in a self-check), builds the program
# unless POSTERN names one, creates the work folder, and copies the example's files there.
begin() {
    case ${1-} in
        '') check='' ;;
        --check) check=yes ;;
        *)
            sed -n '2,/^$/s/^# \{0,1\}//p' "$HERE/run.sh" >&2
            exit 2
            ;;
    esac
    if [[ -z ${POSTERN-} ]]; then
        cargo build --release --locked --manifest-path "$ROOT/Cargo.toml" -p postern
        POSTERN=${CARGO_TARGET_DIR:-$ROOT/target}/release/postern
    fi
    command -v "$POSTERN" >/dev/null || fail "$POSTERN is missing"
    need curl "the package curl"
    need python3 "the package python3"
    work=$(mktemp -d "${TMPDIR:-/tmp}/postern-$NAME.XXXXXX")
    declare -gA pids=()
    trap stop_all EXIT
    # An interrupted self-check is not a success.
    trap '[[ -z $check ]] || exit 130; exit 0' INT
    trap '[[ -z $check ]] || exit 143; exit 0' TERM HUP
    find "$HERE" -maxdepth 1 -type f ! -name run.sh -exec cp {} "$work" \;
    mkdir -m 700 "$work/run"
    umask 077
    differences=0
}

stop_all() {
    trap '' INT TERM HUP
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}

# free_port TAKEN...: prints a port without a listener that is none of these.
free_port() {
    local port
    while port=$("$ROOT/dev/free-port") || fail "no port is free"; [[ " $* " == *" $port "* ]]; do :; done
    printf '%s' "$port"
}

# ports PORT...: in a self-check, replaces the ports in the copied files by free ones. Otherwise
# these ports must be free. `port PORT` prints the resulting port.
declare -A port_of=()
ports() {
    local port free
    for port in "$@"; do
        port_of[$port]=$port
        if [[ -z $check ]]; then
            python3 -c 'import socket, sys; socket.create_server(("127.0.0.1", int(sys.argv[1]))).close()' "$port" 2>/dev/null ||
                fail "another process listens on port $port of 127.0.0.1; end it first"
            continue
        fi
        free=$(free_port "$@" "${port_of[@]}")
        port_of[$port]=$free
        find "$work" -maxdepth 1 -type f -exec sed -i "s/\b$port\b/$free/g" {} +
    done
}
port() { printf '%s' "${port_of[$1]}"; }

random() { head -c 32 /dev/urandom | base64 -w0; }
# A secret that needs no URL encoding: HTTP Basic carries client secrets URL-encoded (RFC 6749,
# section 2.3.1), which curl leaves to its caller.
word() { random | tr '+/' '-_' | tr -d '='; }

# start NAME COMMAND...: starts a program that ends with the example. Its output is in NAME.log.
start() {
    local name=$1
    shift
    "$@" >>"$work/$name.log" 2>&1 &
    pids[$name]=$!
}
# end NAME [SIGNAL]: ends a program before the example ends.
end() {
    kill "-${2:-TERM}" "${pids[$1]}"
    wait "${pids[$1]}" 2>/dev/null || true
    unset "pids[$1]"
}
# serve NAME: starts the gateway or provider of NAME.toml.
serve() { start "$1" "$POSTERN" serve --config "$work/$1.toml"; }
# echo_at PORT [ARGUMENT...]: starts a service that returns what it received.
echo_at() {
    local port=$1
    shift
    start "echo-$port" "$POSTERN" echo --reflect --listen "127.0.0.1:$port" "$@"
}

# Whether every program is running.
running() {
    local pid
    for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null || return 1; done
}

# ready URL: waits until a server answers there with any status, as long as every program runs. If
# one has ended, the answer may come from another process.
ready() {
    for _ in {1..200}; do
        running || break
        if curl -ks -o /dev/null "$1" && running; then return; fi
        sleep 0.1
    done
    tail -n 20 "$work"/*.log >&2
    fail "no answer at $1"
}

# member NAME: prints a member of the JSON object on standard input.
member() { python3 -c 'import json, sys; print(json.load(sys.stdin).get(sys.argv[1]))' "$1"; }
# status ARGUMENT...: prints the status of a curl request.
status() { curl -ks -o /dev/null -w '%{http_code}' "$@"; }

# step WHAT EXPECTED SEEN: prints a line of the self-check.
step() {
    local mark=✓
    [[ $2 == "$3" ]] || { mark=✗ differences=$((differences + 1)); }
    printf '  %s %-72s %s%s\n' "$mark" "$1" "$3" "$([[ $2 == "$3" ]] || printf '   expected %s' "$2")"
}

# finish: prints the last line of a self-check, and exits.
finish() {
    if ((differences)); then
        printf '  %s differ\n' "$differences"
        tail -n 20 "$work"/*.log >&2
        exit 1
    fi
    printf '  all as expected\n'
    exit 0
}

# stay: waits until Ctrl-C, or until a program ends.
stay() {
    running && wait -n "${pids[@]}" || true
    tail -n 20 "$work"/*.log >&2
    fail "one of the programs ended"
}
