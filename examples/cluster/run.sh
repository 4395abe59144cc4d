#!/usr/bin/env bash
# Two nodes of one OpenID provider on one PostgreSQL, behind a gateway. All on loopback.
#
#   examples/cluster/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/cluster/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs PostgreSQL's programs (Debian: postgresql). The program is built, unless POSTERN names one.
# Exit codes: 0 ended by Ctrl-C, or the self-check found no difference; 1 the self-check found a
# difference; 2 invalid command line; 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"

# A separate database server, which ends with this script.
[[ -n ${POSTERN_TEST_POSTGRES-} ]] || exec "$ROOT/dev/with-postgres" "${BASH_SOURCE[0]}" "$@"
begin "$@"
ports 9000 9001 9002 9910 9911 9912
random >"$work/run/provider.secret"
secret=$(word)
printf '%s\n' "$secret" >"$work/run/client.secret"
printf '%s\n' "$POSTERN_TEST_POSTGRES" >"$work/run/database.url"
password=$(word)
password=${password:0:12}
printf '%s\n' "$password" >"$work/run/password"

value() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$work/$2.toml" | tail -1; }
issuer=$(value issuer node-a)
declare -A at=([a]=http://$(value address node-a) [b]=http://$(value address node-b))

"$POSTERN" admin --config "$work/node-a.toml" user add ada --password-file "$work/run/password" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "adding a user failed"; }

serve node-a
serve node-b
serve front
for url in "${at[@]}" "$issuer"; do ready "$url/.well-known/openid-configuration"; done

if [[ -z $check ]]; then
    cat <<END

  provider  $issuer   a gateway in front of two nodes; log in: $issuer/account
  node a    ${at[a]}
  node b    ${at[b]}
  database  $POSTERN_TEST_POSTGRES

  ada  with the password  $password

  Get a token at one node, introspect it at the other, revoke it there, introspect it at the first:

  TOKEN=\$(curl -s -u 'tool:$secret' -d grant_type=password -d username=ada --data-urlencode 'password=$password' \\
    -d scope=openid ${at[a]}/token | python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])')
  curl -s -u 'orders:$secret' -d token=\$TOKEN ${at[b]}/introspect
  curl -s -u 'tool:$secret' -d token=\$TOKEN ${at[b]}/revoke
  curl -s -u 'orders:$secret' -d token=\$TOKEN ${at[a]}/introspect

  Operators:  $POSTERN admin --config $work/node-a.toml session list
  Ctrl-C ends everything.

END
    stay
fi

# The self-check.
ask() { # URL CLIENT FIELD...
    local url=$1 client=$2 field fields=()
    shift 2
    for field in "$@"; do fields+=(--data-urlencode "$field"); done
    curl -s -u "$client:$secret" "${fields[@]}" "$url"
}
login() { ask "$1/token" tool grant_type=password username=ada "password=$password" scope=openid; }
active() { ask "$1/introspect" orders "token=$2" | member active; }

step "clients of the front see one issuer" "$issuer" \
    "$(curl -s "$issuer/.well-known/openid-configuration" | member issuer)"
step "both nodes publish the same keys" "$(curl -s "${at[a]}/jwks" | sha256sum)" "$(curl -s "${at[b]}/jwks" | sha256sum)"
tokens=$(login "${at[a]}")
token=$(member access_token <<<"$tokens") refresh=$(member refresh_token <<<"$tokens")
step "a token of node a is active at node b" True "$(active "${at[b]}" "$token")"
ask "${at[b]}/revoke" tool "token=$token"
step "revoked at node b, it is inactive at node a" False "$(active "${at[a]}" "$token")"
next=$(ask "${at[b]}/token" tool grant_type=refresh_token "refresh_token=$refresh")
step "node b refreshes a grant of node a" True "$(active "${at[a]}" "$(member access_token <<<"$next")")"
step "the used refresh token is refused at node a" invalid_grant \
    "$(ask "${at[a]}/token" tool grant_type=refresh_token "refresh_token=$refresh" | member error)"
step "and its use revoked the tokens of the grant" False "$(active "${at[b]}" "$(member access_token <<<"$next")")"
end node-a KILL
served=0
for _ in {1..10}; do
    [[ $(login "$issuer" | member token_type) == Bearer ]] && served=$((served + 1))
done
step "with node a killed, ten logins at the front" "10 served" "$served served"
serve node-a
ready "${at[a]}/.well-known/openid-configuration"
step "after a restart node a still refuses the revoked token" False "$(active "${at[a]}" "$token")"
verified=$("$POSTERN" admin --config "$work/node-b.toml" audit verify >/dev/null 2>&1 && echo whole || echo broken)
step "the audit log" whole "$verified"
finish
