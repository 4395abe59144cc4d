#!/usr/bin/env bash
# Applications behind Postern: JupyterLab, RabbitMQ and stand-ins for Grafana, a model server and an
# API with a page of another origin. All on loopback.
#
#   examples/apps/run.sh           start everything, print the addresses, run until Ctrl-C
#   examples/apps/run.sh --check   run the self-check on free ports, print the results, end
#
# Needs RabbitMQ and JupyterLab (dev/setup test apps) and openssl. The program is built, unless
# POSTERN names one. Exit codes: 0 ended by Ctrl-C, or the self-check found no difference; 1 the
# self-check found a difference; 2 invalid command line; 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"

rabbitmq=/usr/lib/rabbitmq/bin/rabbitmq-server
python=$ROOT/.cache/venv/bin/python
need "$rabbitmq" "it with dev/setup apps"
need epmd "the package erlang-base"
need openssl "the package openssl"
"$python" -c 'import grpc, ipykernel, jupyterlab, websocket' 2>/dev/null || fail "JupyterLab or grpcio is missing; run dev/setup test apps"

begin "$@"
# RabbitMQ's usual ports may be those of Debian's own service.
ports 3000 8001 8002 8003 8443 8888 9000 9003 9911 14369 15672 15673 25673
provider=http://127.0.0.1:$(port 9000)
# at NAME: prints the address of the application.
at() { printf 'https://%s.localhost:%s' "$1" "$(port 8443)"; }
list=https://localhost:$(port 8443)

# Secrets.
random >"$work/run/login.keys"
secret=$(word)
printf '%s\n' "$secret" >"$work/run/client.secret"
password=$(word)
password=${password:0:12}
printf '%s\n' "$password" >"$work/run/password"
rabbitmq_password=$(word)
rabbitmq_password=${rabbitmq_password:0:12}
monitor_password=$(word)
printf 'monitor:%s' "$monitor_password" | base64 -w0 >"$work/run/monitor.basic"

# A certificate authority of this example, and a certificate with all names.
names=DNS:localhost,IP:127.0.0.1
for name in jupyter grafana rabbitmq queues model spa api; do names+=,DNS:$name.localhost; done
{
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 7 -subj "/CN=Postern's example" \
        -addext 'basicConstraints=critical,CA:TRUE,pathlen:0' -addext 'keyUsage=critical,keyCertSign' \
        -keyout "$work/run/ca.key" -out "$work/run/ca.pem"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout "$work/run/cert.key" |
        openssl x509 -req -days 7 -CA "$work/run/ca.pem" -CAkey "$work/run/ca.key" -out "$work/run/cert.pem" \
            -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\n' "$names")
} 2>"$work/openssl.log" || { cat "$work/openssl.log" >&2; fail "openssl cannot create a certificate"; }
rm "$work/run/ca.key"
# curl and client.py trust it.
export SSL_CERT_FILE=$work/run/ca.pem CURL_CA_BUNDLE=$work/run/ca.pem

operator() {
    "$POSTERN" admin --config "$work/postern.toml" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "admin command failed: $*"; }
}
operator group add data-science
operator group add operators
operator user add ada --email ada@example.com --verified --password-file "$work/run/password"
operator user add bob --email bob@example.com --verified --password-file "$work/run/password"
operator group add-member data-science ada
operator group add-member operators ada

# RabbitMQ, with its management API. Erlang would start its name server, epmd, by itself and leave
# it running.
start_rabbitmq() {
    mkdir "$work/rabbitmq"
    printf '[rabbitmq_management].\n' >"$work/rabbitmq/plugins"
    cat >"$work/rabbitmq/rabbitmq.conf" <<END
management.tcp.ip = 127.0.0.1
management.tcp.port = $(port 15672)
default_user = admin
default_pass = $rabbitmq_password
END
    start epmd epmd -address 127.0.0.1 -port "$(port 14369)"
    start rabbitmq env HOME="$work/rabbitmq" ERL_EPMD_PORT="$(port 14369)" \
        RABBITMQ_NODENAME="postern$(port 15673)@localhost" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 \
        RABBITMQ_NODE_PORT="$(port 15673)" RABBITMQ_DIST_PORT="$(port 25673)" \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}' \
        RABBITMQ_MNESIA_BASE="$work/rabbitmq/mnesia" RABBITMQ_LOG_BASE="$work/rabbitmq" \
        RABBITMQ_PID_FILE="$work/rabbitmq/pid" RABBITMQ_CONFIG_FILE="$work/rabbitmq/rabbitmq" \
        RABBITMQ_ENABLED_PLUGINS_FILE="$work/rabbitmq/plugins" "$rabbitmq"
}

# JupyterLab without a token of its own: the gateway authenticates.
start_jupyter() {
    mkdir -p "$work/jupyter/notebooks"
    start jupyter env HOME="$work/jupyter" JUPYTER_CONFIG_DIR="$work/jupyter/config" \
        JUPYTER_RUNTIME_DIR="$work/jupyter/runtime" JUPYTER_DATA_DIR="$work/jupyter/data" \
        "$python" -m jupyterlab --ServerApp.ip=127.0.0.1 --ServerApp.port="$(port 8888)" --ServerApp.port_retries=0 \
        --ServerApp.root_dir="$work/jupyter/notebooks" --ServerApp.open_browser=False --ServerApp.allow_root=True \
        --ServerApp.allow_remote_access=True --IdentityProvider.token=
}

# slow URL: waits for a server that starts slowly.
slow() {
    for _ in {1..8}; do
        for _ in {1..100}; do
            running || break 2
            curl -s -o /dev/null "$1" && return
            sleep 0.1
        done
    done
    ready "$1"
}

mkdir -p "$work/files/reports" "$work/files/salaries"
echo "all is well" >"$work/files/reports/2026.txt"
echo "a secret" >"$work/files/salaries/2026.txt"

[[ -n $check ]] || echo "starting JupyterLab, RabbitMQ and the others …"
start_rabbitmq
start_jupyter
start grafana python3 "$work/grafana.py" "$(port 3000)"
start model "$python" "$work/model.py" "$(port 8001)" "$(port 8002)"
start files python3 -m http.server --bind 127.0.0.1 --directory "$work/files" "$(port 8003)"
echo_at "$(port 9003)"
serve postern
for server in 3000 8001 8003 9003; do ready "http://127.0.0.1:$(port $server)/"; done
ready "$provider/.well-known/openid-configuration"
ready "http://127.0.0.1:$(port 9911)/readyz"
slow "http://127.0.0.1:$(port 8888)/api/status"
slow "http://127.0.0.1:$(port 15672)/api/overview"

# A user of RabbitMQ that may only look, for the gateway.
manage() { curl -fsS -u "admin:$rabbitmq_password" -X PUT "http://127.0.0.1:$(port 15672)/api/$1" -d "$2"; }
manage users/monitor "{\"password\": \"$monitor_password\", \"tags\": \"monitoring\"}"
manage permissions/%2F/monitor '{"configure": "^$", "write": "^$", "read": "^$"}'
manage queues/%2F/orders '{"durable": true}'

# token CLIENT: prints a token of that client.
token() { curl -fs -u "$1:$secret" -d grant_type=client_credentials "$provider/token" | member access_token; }

if [[ -z $check ]]; then
    cat <<END

  applications  $list

  Sign in as  ada, who is in all groups, or  bob, who is in none. The password is  $password
  RabbitMQ asks again, for its own user:  admin  with the password  $rabbitmq_password

  Browsers warn of the certificate at each address: accept it, or let them trust  $work/run/ca.pem
  The page Orders calls  $(at api)  so open that once too. It says 401: you have no token.

  Programs have tokens. A model that streams, and a queue of RabbitMQ:

    export CURL_CA_BUNDLE=$work/run/ca.pem
    token() { curl -s -u "\$1:$secret" -d grant_type=client_credentials $provider/token |
      python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])'; }
    curl -N -H "Authorization: Bearer \$(token assistant)" $(at model)/v1/completions \\
      -d '{"prompt": "to be or not to be", "pause": 0.5}'
    curl -H "Authorization: Bearer \$(token monitor)" $(at queues)/api/queues/%2F/orders

  Who may do what is in  $work/postern.toml  which you may edit: it is read again.

  Ctrl-C ends everything.

END
    stay
fi

# The self-check: curl is the browser, with each person's cookies in a file.
browse() { curl -s -b "$work/run/$user" -c "$work/run/$user" -H 'Accept: text/html' "$@"; }
# log_in URL: opens the page, fills in the login page if there is one, prints the last URL.
log_in() {
    local field fields=() url
    url=$(browse -L -o "$work/run/page" -w '%{url_effective}' "$1")
    if [[ $url == "$provider"/* ]]; then
        while IFS= read -r field; do fields+=(--data-urlencode "$field"); done < <(
            python3 -c 'import html, re, sys
for name, value in re.findall(r"<input type=\"hidden\" name=\"([^\"]*)\" value=\"([^\"]*)\"", sys.stdin.read()):
    print(name + "=" + html.unescape(value))' <"$work/run/page"
        )
        url=$(browse -L -o "$work/run/page" -w '%{url_effective}' "${fields[@]}" -d "username=$user" \
            --data-urlencode "password=$password" "$provider/login")
    fi
    printf '%s' "$url"
}
# page URL [ARGUMENT...]: prints the status, for the user.
page() { browse -o /dev/null -w '%{http_code}' "$@"; }
# header NAME ARGUMENT...: prints a header of the response.
header() {
    local name=$1
    shift
    curl -s -o /dev/null -D - "$@" | sed -n "s/^$name: \(.*\)\r/\1/Ip"
}
client() { "$python" "$work/client.py" "$(port 8443)" "$@" 2>>"$work/client.log"; }

echo JupyterLab
jupyter=$(at jupyter)
notebook=$jupyter/api/contents/Report%20%233.ipynb
user=ada
step "a browser is redirected to the login" "302 $jupyter/oauth2/start?rd=%2Flab" \
    "$(browse -o /dev/null -w '%{http_code} %{redirect_url}' "$jupyter/lab")"
step "and returns to the requested page" "$jupyter/lab" "$(log_in "$jupyter/lab")"
xsrf=$(awk '$6 == "_xsrf" { print $7 }' "$work/run/ada")
step "a notebook called Report #3.ipynb is stored" 201 "$(page "$notebook" -X PUT -H "X-XSRFToken: $xsrf" \
    -d '{"type": "notebook", "content": {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}}')"
step "and read by its name" "Report #3.ipynb" "$(browse "$notebook" | member name)"
step "its kernel computes 6 * 7 over a WebSocket" 42 "$(client kernel "$work/run/ada" "$jupyter")"
step "a page of another origin cannot open that WebSocket" "403 foreign_origin" "$(client kernel "$work/run/ada" "$(at spa)")"
user=bob
log_in "$jupyter/lab" >/dev/null
step "bob, who is not in data-science, is refused" 403 "$(page "$jupyter/lab")"
step "and so is a path above the root, whatever its spelling" 400 \
    "$(page --path-as-is "$jupyter/static/..%2F..%2Fapi/contents")"

echo Grafana
grafana=$(at grafana)
user=ada
step "ada is signed in already" "$grafana/" "$(log_in "$grafana/")"
step "Grafana receives her name and address" "ada ada@example.com Viewer" \
    "$(browse "$grafana/api/user" | python3 -c 'import json, sys; u = json.load(sys.stdin); print(u["login"], u["email"], u["role"])')"
step "a forged name does not arrive" ada "$(browse -H 'X-WEBAUTH-USER: admin' "$grafana/api/user" | member login)"
step "nor does it in another spelling" ada "$(browse -H 'X_WEBAUTH_USER: admin' "$grafana/api/user" | member login)"
step "nor a header that the gateway does not set" Viewer "$(browse -H 'X-WEBAUTH-ROLE: Admin' "$grafana/api/user" | member role)"
step "without a session a forged name gets 401" 401 "$(status -H 'X-WEBAUTH-USER: admin' "$grafana/api/user")"

echo RabbitMQ
rabbit=$(at rabbitmq)
basic=(-u "admin:$rabbitmq_password")
step "RabbitMQ's password alone does not open its console" 401 "$(status "${basic[@]}" "$rabbit/api/overview")"
log_in "$rabbit/" >/dev/null
step "a session alone does not pass RabbitMQ's own login" 'Basic realm="RabbitMQ Management"' \
    "$(header www-authenticate -b "$work/run/ada" "$rabbit/api/queues/%2F/orders")"
step "a session and the password read a queue of the virtual host /" "/ orders" \
    "$(curl -s -b "$work/run/ada" "${basic[@]}" "$rabbit/api/queues/%2F/orders" | python3 -c 'import json, sys; q = json.load(sys.stdin); print(q["vhost"], q["name"])')"
user=bob
log_in "$rabbit/" >/dev/null
step "bob, who is not an operator, is refused with the same password" 403 "$(page "${basic[@]}" "$rabbit/api/overview")"
monitor=(-H "Authorization: Bearer $(token monitor)")
step "a program reads the queue with a token, without a password" orders \
    "$(curl -s "${monitor[@]}" "$(at queues)/api/queues/%2F/orders" | member name)"
step "it cannot delete the queue" 404 "$(status "${monitor[@]}" -X DELETE "$(at queues)/api/queues/%2F/orders")"
step "nor leave its path" 400 "$(status --path-as-is "${monitor[@]}" "$(at queues)/api/queues/..%2Fusers")"

echo "Model server"
model=$(at model)
assistant=$(token assistant)
say() { printf '{"prompt": "%s", "thinks": %s, "pause": %s}' "$@"; }
step "without a token the model is silent" 401 "$(client events none "$(say "to be" 0 0)")"
step "a token without the scope is refused" 403 "$(client events "$(token monitor)" "$(say "to be" 0 0)")"
step "its words arrive while it speaks" "to be or not to be live" "$(client events "$assistant" "$(say "to be or not to be" 0 0.4)")"
step "it may think for longer than other requests" "that is live" "$(client events "$assistant" "$(say "that is" 5 1)")"
step "other requests may not" 504 "$(status -H "Authorization: Bearer $assistant" "$model/v1/models?thinks=5")"
step "the same over gRPC" "to be or not to be live" "$(client grpc "$assistant" "$(say "to be or not to be" 0 0.4)")"
step "where a token without the scope is refused too" PERMISSION_DENIED "$(client grpc "$(token monitor)" "$(say "to be" 0 0)")"
printf '%s\n' "$assistant" >"$work/run/assistant"
mkfifo "$work/run/words"
client events "$assistant" "$(say "$(seq -s ' ' 60)" 0 1)" >"$work/run/words" &
exec 3<"$work/run/words"
read -r -d ' ' -u 3 _
operator token revoke "$work/run/assistant"
step "a stream is cut when its token is revoked" cut "$(sed 's/.* //' <&3)"

echo "Single-page application"
orders=$(at api)/orders
preflight=(-X OPTIONS -H 'Access-Control-Request-Method: GET' -H 'Access-Control-Request-Headers: authorization')
step "its page may call the API" "$(at spa)" "$(header access-control-allow-origin "${preflight[@]}" -H "Origin: $(at spa)" "$orders")"
step "a page of another origin may not" "" "$(header access-control-allow-origin "${preflight[@]}" -H 'Origin: https://evil.example' "$orders")"
step "the page sees why it is refused without a token" "401 $(at spa)" \
    "$(status -H "Origin: $(at spa)" "$orders") $(header access-control-allow-origin -H "Origin: $(at spa)" "$orders")"
# The page's own login: authorization code with PKCE, in ada's browser.
user=ada
verifier=$(word)
challenge=$(printf %s "$verifier" | openssl dgst -sha256 -binary | base64 -w0 | tr '+/' '-_' | tr -d '=')
code=$(browse -o /dev/null -w '%{redirect_url}' -G "$provider/authorize" -d response_type=code -d client_id=spa \
    --data-urlencode "redirect_uri=$(at spa)/" --data-urlencode 'scope=openid orders:read' -d state=x \
    -d "code_challenge=$challenge" -d code_challenge_method=S256 | sed -n 's/.*[?&]code=\([^&]*\).*/\1/p')
access=$(curl -s "$provider/token" -d grant_type=authorization_code -d client_id=spa --data-urlencode "redirect_uri=$(at spa)/" \
    -d "code=$code" -d "code_verifier=$verifier" | member access_token)
step "with ada's token it is admitted" 200 "$(status -H "Origin: $(at spa)" -H "Authorization: Bearer $access" "$orders")"

echo "Files below a path, and addresses of this host"
step "the list of applications needs no login" 200 "$(status "$list/")"
step "an old address leads to the new one" "308 $jupyter/lab/tree/a.ipynb?b=1" \
    "$(curl -s -o /dev/null -w '%{http_code} %{redirect_url}' "$list/notebooks/a.ipynb?b=1")"
user=bob
log_in "$list/files/" >/dev/null
step "a redirect of the file server leads back below /files" /files/reports/ \
    "$(header location -b "$work/run/bob" "$list/files/reports")"
step "bob reads a report" "all is well" "$(browse "$list/files/reports/2026.txt")"
step "but no salaries" 403 "$(page "$list/files/salaries/2026.txt")"
step "nor in another spelling of the path" 400 "$(page --path-as-is "$list/files/reports/..%2Fsalaries/2026.txt")"
user=ada
log_in "$list/files/" >/dev/null
step "ada reads them" "a secret" "$(browse "$list/files/salaries/2026.txt")"
browse -L -o /dev/null "$list/oauth2/sign_out"
gone() { for _ in {1..25}; do [[ $(page "$1") != 302 ]] || break; sleep 0.2; done; page "$1"; }
step "signing out here signs out at JupyterLab too" 302 "$(gone "$jupyter/lab")"
finish
