#!/usr/bin/env bash
# Users log in with a browser, in front of a service without a login of its own. Gateway and
# provider in one process. All on loopback.
#
#   examples/login/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/login/run.sh --check   run the self-check on free ports, print the results, end
#
# The program is built, unless POSTERN names one. Exit codes: 0 ended by Ctrl-C, or the self-check
# found no difference; 1 the self-check found a difference; 2 invalid command line; 3 it cannot run
# here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"

begin "$@"
ports 8080 9000 9003 9911
url=http://localhost:$(port 8080)
provider=http://127.0.0.1:$(port 9000)
random >"$work/run/login.keys"
word >"$work/run/client.secret"
password=$(word)
password=${password:0:12}
printf '%s\n' "$password" >"$work/run/password"

operator() {
    "$POSTERN" admin --config "$work/postern.toml" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "admin command failed: $*"; }
}
operator user add ada --email ada@example.com --verified --password-file "$work/run/password"
operator group add admins

echo_at "$(port 9003)"
serve postern
ready "http://127.0.0.1:$(port 9003)/"
ready "$provider/.well-known/openid-configuration"
ready "$url/"

if [[ -z $check ]]; then
    cat <<END

  service   $url         log in as  ada  with the password  $password
  admins    $url/admin   403, until ada is in the group:

    $POSTERN admin --config $work/postern.toml group add-member admins ada

  account   $provider/account      sign-out there also ends the session here
  sign out  $url/oauth2/sign_out

  Ctrl-C ends everything.

END
    stay
fi

# The self-check: curl is the browser, with its cookies in a file.
browse() { curl -s -b "$work/run/cookies" -c "$work/run/cookies" -H 'Accept: text/html' "$@"; }
# told NAME: prints a header that the service received. The service returns it in its response.
told() {
    python3 -c 'import json, sys
headers = json.load(sys.stdin)["headers"]
print(", ".join(value for name, value in headers if name.lower() == sys.argv[1]))' "$1"
}
# log_in PATH: opens the path, fills in the login page, and prints the URL of the last page.
log_in() {
    local field fields=()
    browse -L -o "$work/run/page" "$url$1"
    while IFS= read -r field; do fields+=(--data-urlencode "$field"); done < <(
        python3 -c 'import html, re, sys
for name, value in re.findall(r"<input type=\"hidden\" name=\"([^\"]*)\" value=\"([^\"]*)\"", sys.stdin.read()):
    print(name + "=" + html.unescape(value))' <"$work/run/page"
    )
    browse -L -o "$work/run/page" -w '%{url_effective}' "${fields[@]}" -d username=ada --data-urlencode "password=$password" \
        "$provider/login"
}
# within EXPECTED COMMAND...: prints the output of a command as soon as it is the expected one, and
# after five seconds in any case.
within() {
    local expected=$1 said
    shift
    for _ in {1..25}; do
        said=$("$@")
        [[ $said == "$expected" ]] && break
        sleep 0.2
    done
    printf '%s' "$said"
}
page() { browse -o /dev/null -w '%{http_code}' "$url$1"; }

step "a program without a credential gets 401" 401 "$(status "$url/reports")"
step "a browser is redirected to the login" "302 $url/oauth2/start?rd=%2Freports%3Fyear%3D2026" \
    "$(browse -o /dev/null -w '%{http_code} %{redirect_url}' "$url/reports?year=2026")"
step "and returns to the requested page" "$url/reports?year=2026" "$(log_in '/reports?year=2026')"
step "the service receives the user's address" ada@example.com "$(browse "$url/" | told x-forwarded-email)"
step "and receives only its own cookies" theme=dark "$(browse -b theme=dark -b "$work/run/cookies" "$url/" | told cookie)"
step "the admins' page refuses ada" 403 "$(page /admin)"
operator group add-member admins ada
step "and admits ada, after the next refresh, as a member of the group" 200 "$(within 200 page /admin)"
operator user revoke ada
step "an operator of the provider revokes all sessions of ada" 302 "$(within 302 page /reports)"
step "ada logs in again" "$url/reports" "$(log_in /reports)"
cp "$work/run/cookies" "$work/run/stolen"
step "ada signs out" "$url/oauth2/signed_out" "$(browse -L -o "$work/run/page" -w '%{url_effective}' "$url/oauth2/sign_out")"
step "the session at the provider has ended as well" "Sign in" \
    "$(browse -L "$url/reports" | sed -n 's/.*<h1[^>]*>\([^<]*\)<.*/\1/p' | head -1)"
step "a copy of the cookie is refused" 302 \
    "$(curl -s -b "$work/run/stolen" -H 'Accept: text/html' -o /dev/null -w '%{http_code}' "$url/reports")"
log_in /reports >/dev/null
end postern
serve postern
ready "$url/"
step "sessions survive a restart" 200 "$(page /reports)"
finish
