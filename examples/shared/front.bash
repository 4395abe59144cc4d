# shellcheck shell=bash
# Shared parts of the examples in which another proxy queries Postern: the token issuer, the service
# behind the proxy, and the self-check.

# front PORT: starts everything but the proxy, which listens on that port.
front() {
    cp "$HERE/../shared/tokens.toml" "$work"
    ports "$1" 9000 9002 9003 9910 9911
    url=http://127.0.0.1:$(port "$1")
    secret=$(word)
    printf '%s\n' "$secret" >"$work/run/client.secret"
    serve tokens
    ready "http://127.0.0.1:$(port 9000)/jwks"
    echo_at "$(port 9003)"
    ready "http://127.0.0.1:$(port 9003)/"
    serve postern
    ready "http://127.0.0.1:$(port 9911)/readyz"
}

# token CLIENT: prints a token of that client.
token() {
    curl -fs -u "$1:$secret" -d grant_type=client_credentials "http://127.0.0.1:$(port 9000)/token" | member access_token
}

# seen NAME ARGUMENT...: sends a request with curl and prints the value of a header that the service
# received; nothing if it was absent.
seen() {
    local name=$1
    shift
    curl -ks "$@" | python3 -c '
import json, sys
try:
    headers = json.load(sys.stdin)["headers"]
except (ValueError, KeyError):
    print("no response of the service")
    sys.exit()
values = [value for name, value in headers if name.lower() == sys.argv[1]]
print(", ".join(value for value in values if value))' "$name"
}

# stay_at_front PROXY: prints the addresses, and waits.
stay_at_front() {
    cat <<END

  application  $url          through $1, which queries Postern
  public       $url/public   no token needed
  operators    $url/admin    for members of the group admins

  TOKEN=\$(curl -s -u 'visitor:$secret' -d grant_type=client_credentials http://127.0.0.1:$(port 9000)/token \\
    | python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])')
  curl -H "Authorization: Bearer \$TOKEN" $url/
  curl -i $url/

  Ctrl-C ends everything.

END
    stay
}

# tour_of_front DOWN: checks what must hold for every proxy. DOWN is the status that clients get
# while Postern does not run.
tour_of_front() {
    local visitor operator
    visitor="Authorization: Bearer $(token visitor)"
    operator="Authorization: Bearer $(token operator)"
    step "a public path needs no token" 200 "$(status "$url/public/x")"
    step "the application needs a token" 401 "$(status "$url/x")"
    step "and names the scheme" Bearer \
        "$(curl -ksi "$url/x" | sed -n 's/^www-authenticate: \([A-Za-z]*\) .*/\1/Ip' | head -1)"
    step "an invalid token is refused" 401 "$(status -H "Authorization: Bearer x.y.z" "$url/x")"
    step "a visitor is admitted" 200 "$(status -H "$visitor" "$url/x?y=z")"
    step "the service receives the caller's name" visitor "$(seen x-forwarded-user -H "$visitor" "$url/x")"
    step "and the caller's groups" users "$(seen x-forwarded-groups -H "$visitor" "$url/x")"
    step "the service does not receive the token" "" "$(seen authorization -H "$visitor" "$url/x")"
    step "a client cannot set another user name" visitor \
        "$(seen x-forwarded-user -H "$visitor" -H 'X-Forwarded-User: root' "$url/x")"
    step "nor without a token" "" "$(seen x-forwarded-user -H 'X-Forwarded-User: root' "$url/public/x")"
    step "nor by a similar header name" "not root" \
        "$([[ $(seen x_forwarded_user -H 'X_Forwarded_User: root' "$url/public/x") == root ]] && echo root || echo "not root")"
    step "a content type does not bypass the check" "no response of the service" \
        "$(seen host -H 'Content-Type: application/grpc' "$url/x")"
    step "the operators' pages refuse visitors" 403 "$(status -H "$visitor" "$url/admin/x")"
    step "and admit operators" 200 "$(status -H "$operator" "$url/admin/x")"
    step "an encoded path does not bypass the rules" "not 200" \
        "$([[ $(status --path-as-is -H "$visitor" "$url/public/%2e%2e/admin/x") == 200 ]] && echo 200 || echo "not 200")"
    step "a POST is checked like any other request" 200 "$(status -H "$visitor" -d hello=world "$url/x")"
    end postern
    # No earlier request had these paths, so no answer is cached.
    step "without Postern no request passes" "$1" "$(status -H "$visitor" "$url/y")"
    step "not even to a public path" "$1" "$(status "$url/public/y")"
}
