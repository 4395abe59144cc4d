# shellcheck shell=bash
# What the examples share in which another proxy asks: who gives tokens, who is behind the proxy, and the tour through it.

# front PORT: the proxy listens there; begins everything but the proxy itself.
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

# token CLIENT: a token of that client.
token() {
    curl -fs -u "$1:$secret" -d grant_type=client_credentials "http://127.0.0.1:$(port 9000)/token" | member access_token
}

# seen NAME ARGUMENT...: what the service behind received in a header, when curl asks so; nothing when it was not there.
seen() {
    local name=$1
    shift
    curl -ks "$@" | python3 -c '
import json, sys
try:
    headers = json.load(sys.stdin)["headers"]
except (ValueError, KeyError):
    print("no answer of the service")
    sys.exit()
values = [value for name, value in headers if name.lower() == sys.argv[1]]
print(", ".join(value for value in values if value))' "$name"
}

# stay_at_front PROXY: says where everything is, and stays.
stay_at_front() {
    cat <<END

  application  $url          through $1, which asks Postern
  open         $url/public   no token is asked for
  operators    $url/admin    for those in the group admins

  TOKEN=\$(curl -s -u 'visitor:$secret' -d grant_type=client_credentials http://127.0.0.1:$(port 9000)/token \\
    | python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])')
  curl -H "Authorization: Bearer \$TOKEN" $url/
  curl -i $url/

  Ctrl-C ends everything.

END
    stay
}

# tour_of_front DOWN: what must hold whoever the proxy is; DOWN is what clients see when Postern is gone.
tour_of_front() {
    local visitor operator
    visitor="Authorization: Bearer $(token visitor)"
    operator="Authorization: Bearer $(token operator)"
    step "an open path asks for nothing" 200 "$(status "$url/public/x")"
    step "the application asks for a token" 401 "$(status "$url/x")"
    step "and says which kind" Bearer \
        "$(curl -ksi "$url/x" | sed -n 's/^www-authenticate: \([A-Za-z]*\) .*/\1/Ip' | head -1)"
    step "a token that is none" 401 "$(status -H "Authorization: Bearer x.y.z" "$url/x")"
    step "a visitor comes in" 200 "$(status -H "$visitor" "$url/x?y=z")"
    step "the service hears who it is" visitor "$(seen x-forwarded-user -H "$visitor" "$url/x")"
    step "and of which groups" users "$(seen x-forwarded-groups -H "$visitor" "$url/x")"
    step "the token stays behind" "" "$(seen authorization -H "$visitor" "$url/x")"
    step "nobody can say they are somebody else" visitor \
        "$(seen x-forwarded-user -H "$visitor" -H 'X-Forwarded-User: root' "$url/x")"
    step "nor without a token" "" "$(seen x-forwarded-user -H 'X-Forwarded-User: root' "$url/public/x")"
    step "nor by a name that looks alike" "not root" \
        "$([[ $(seen x_forwarded_user -H 'X_Forwarded_User: root' "$url/public/x") == root ]] && echo root || echo "not root")"
    step "what a request says of its body opens nothing" "no answer of the service" \
        "$(seen host -H 'Content-Type: application/grpc' "$url/x")"
    step "operators' pages are not for visitors" 403 "$(status -H "$visitor" "$url/admin/x")"
    step "but for operators" 200 "$(status -H "$operator" "$url/admin/x")"
    step "a way around does not lead there" "not 200" \
        "$([[ $(status --path-as-is -H "$visitor" "$url/public/%2e%2e/admin/x") == 200 ]] && echo 200 || echo "not 200")"
    step "a POST is asked about like any other" 200 "$(status -H "$visitor" -d hello=world "$url/x")"
    end postern
    # About these nobody has asked before.
    step "without Postern nobody comes in" "$1" "$(status -H "$visitor" "$url/y")"
    step "not even where nothing is asked for" "$1" "$(status "$url/public/y")"
}
