# shellcheck shell=bash
# Tries a download three times, and distinguishes a failed download from other failures. Sourced by
# dev/setup and dev/test, which set -u -o pipefail.
#
# A test may be skipped only because of a failed download, so an unknown error counts as another
# failure.

TRIES=3
# The exit code for "could not be downloaded" (EX_TEMPFAIL of sysexits.h).
UNREACHABLE=75

# Messages of cargo, rustup, go, git, pip, apt, npm and Maven when a server cannot be reached or does not
# deliver; their exit codes do not show it. These are causes. Headlines such as "failed to download"
# or "Unable to update registry" are left out on purpose: they also appear with a full disk and a
# folder that is not writable.
NETWORK=(
    "could( not|n't) (resolve|connect)" 'unable to connect' 'failed to (connect|establish a new connection)'
    'temporary failure' 'failure in name resolution' 'name or service not known' 'no such host' 'dns error'
    'connection (refused|reset|aborted|broken|closed|failed|timed out)' 'network is unreachable' 'no route to host'
    '(i/o|handshake|gateway) time-?out' '(read|connect|operation) timed out' 'timeout was reached'
    'tls handshake' 'ssl connect error' 'error sending request' 'tunnel (connection )?failed' 'cannot connect to proxy'
    'returned error: [45]' 'http error [45]' 'got [45][0-9][0-9]$' 'bad gateway' 'service unavailable'
    'too many requests' '40[37] +(forbidden|proxy)' 'unexpected eof' 'early eof' 'empty reply' 'unexpected disconnect'
    'npm err(or|!) (network|code (e40[0-9]|e5[0-9][0-9]|enotfound|eai_again|econn[a-z]+|etimedout|err_socket_timeout))'
    'could not transfer artifact' 'failed to fetch https?:' '^ +\[(5|6|7|16|18|28|35|52|55|56|92)\] '
)

# `cargo install` and pip download and build in one command, and build only after all downloads. So
# a failed build is never a failed download, whatever it prints.
BUILDING=('could not compile' 'failed to run custom build command' 'failed (to build|building)')

# A script that uses one of these names for something else fails at once.
readonly TRIES UNREACHABLE NETWORK BUILDING

# says FILE PATTERN...: whether a line of the file matches one of the patterns.
says() {
    local file=$1 IFS='|'
    shift
    grep -Eqi -- "$*" "$file"
}

# try_download LOG COMMAND...: runs the command up to three times and appends its output to LOG.
# Returns 0, or $UNREACHABLE if the network failed every time, or 1. A failed build is not tried
# again.
try_download() {
    local log=$1 said=$1.try attempt code verdict=$UNREACHABLE
    shift
    for ((attempt = 1; attempt <= TRIES; attempt++)); do
        code=0
        # In English, because the output is searched below.
        LC_ALL=C.UTF-8 "$@" 2>&1 </dev/null | tee "$said" >>"$log" || code=$?
        if ((code == 0)); then
            verdict=0
            break
        fi
        printf -- '-- try %d of %d ended with %d\n' "$attempt" "$TRIES" "$code" >>"$log"
        if says "$said" "${BUILDING[@]}"; then
            verdict=1
            break
        fi
        # 124: timeout(1) ended it.
        ((code == 124)) || says "$said" "${NETWORK[@]}" || verdict=1
        ((attempt == TRIES)) || sleep $((attempt * 2))
    done
    rm -f "$said"
    return "$verdict"
}
