#!/usr/bin/env bash
# Two clusters with two nodes each of one OpenID provider, on one PostgreSQL. The gateway of each
# cluster follows the provider's revocations. All on loopback.
#
#   examples/two-clusters/run.sh [--broker BROKER]
#       start everything, print the addresses, run until Ctrl-C
#   examples/two-clusters/run.sh [--broker BROKER] --check
#       run the self-check on free ports, print the results, end
#
# BROKER carries the messages between clusters: none (gateways query over HTTP; the default), nats,
# artemis, activemq or rabbitmq. `dev/setup brokers` installs the brokers. Needs PostgreSQL's
# programs (Debian: postgresql). The program is built, unless POSTERN names one. Exit codes: 0 ended
# by Ctrl-C, or the self-check found no difference; 1 the self-check found a difference; 2 invalid
# command line; 3 it cannot run here.

# shellcheck source=examples/shared/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/../shared/lib.bash"

# A separate database server, which ends with this script.
[[ -n ${POSTERN_TEST_POSTGRES-} ]] || exec "$ROOT/dev/with-postgres" "${BASH_SOURCE[0]}" "$@"
broker=none
if [[ ${1-} == --broker ]]; then
    broker=${2-}
    shift 2 || shift
fi
case $broker in
    none | nats | artemis | activemq | rabbitmq) begin "$@" ;;
    *) begin --help ;;
esac
NODES=(node-a1 node-a2 node-b1 node-b2) GATEWAYS=(gateway-a gateway-b)
ports 9000 9001 9002 9003 9004 9010 9020 9100 9910 9911 9912 9913 9914 9915 9916
[[ $broker == none ]] || ports 9200
random >"$work/run/provider.secret"
secret=$(word)
printf '%s\n' "$secret" >"$work/run/client.secret"
printf '%s\n' "$POSTERN_TEST_POSTGRES" >"$work/run/database.url"

# The broker, and its settings in the configurations of nodes and gateways.
if [[ $broker != none ]]; then
    start broker "$ROOT/dev/brokers/start" "$broker" "$(port 9200)" "$work/run/broker"
    until [[ -e $work/run/broker/ready ]]; do
        kill -0 "${pids[broker]}" 2>/dev/null || { cat "$work/broker.log" >&2; fail "the broker does not start"; }
        sleep 0.1
    done
    case $broker in
        nats) lines=("brokers = [\"nats://127.0.0.1:$(port 9200)\"]") ;;
        *)
            lines=("brokers = [\"amqp://127.0.0.1:$(port 9200)\"]" 'user = "postern"' 'password_file = "run/broker/password"')
            [[ $broker != activemq ]] || lines+=('addressing = "scheme"')
            [[ $broker != rabbitmq ]] || lines+=('addressing = "path"')
            ;;
    esac
    for name in "${NODES[@]}" "${GATEWAYS[@]}"; do
        printf '\n[revocation]\n' >>"$work/$name.toml"
        printf '%s\n' "${lines[@]}" >>"$work/$name.toml"
    done
fi

echo_at "$(port 9100)"
serve node-a1
ready "http://127.0.0.1:$(port 9001)/.well-known/openid-configuration"
for name in node-a2 node-b1 node-b2 front; do serve "$name"; done
for port in 9002 9003 9004 9000; do ready "http://127.0.0.1:$(port "$port")/.well-known/openid-configuration"; done
"$POSTERN" admin --config "$work/node-a1.toml" revocation secret >"$work/run/follow.secret"
for name in "${GATEWAYS[@]}"; do serve "$name"; done
# Every process answers `ready` without a remark: it is connected to all others.
all_well() {
    local port
    for port in 9911 9912 9913 9914 9915 9916; do
        [[ $(curl -s "http://127.0.0.1:$(port "$port")/readyz") == ready ]] || return
    done
}
for _ in {1..300}; do
    all_well && break
    sleep 0.1
done
all_well || { tail -n 20 "$work"/*.log >&2; fail "some process is not connected to the others"; }

at() { printf 'http://127.0.0.1:%s' "$(port "$1")"; }
if [[ -z $check ]]; then
    cat <<END

  provider   $(at 9000)   four nodes: $(at 9001) and $(at 9002) in cluster A, $(at 9003) and $(at 9004) in cluster B
  gateways   $(at 9010) in cluster A, $(at 9020) in cluster B
  broker     $broker

  Get a token, send it to both gateways, revoke it at a node of cluster A, send it to both again:

  TOKEN=\$(curl -s -u 'tool:$secret' -d grant_type=client_credentials $(at 9001)/token | python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])')
  curl -si -H "Authorization: Bearer \$TOKEN" $(at 9010) | head -1; curl -si -H "Authorization: Bearer \$TOKEN" $(at 9020) | head -1
  curl -s -u 'tool:$secret' -d token=\$TOKEN $(at 9001)/revoke
  curl -si -H "Authorization: Bearer \$TOKEN" $(at 9010) | head -1; curl -si -H "Authorization: Bearer \$TOKEN" $(at 9020) | head -1

  Revocation state of a gateway: curl -s $(at 9915)/metrics | grep revocation
  Ctrl-C ends everything.

END
    stay
fi

# The self-check.
code=0
seen=$("$work/refusal.py" 10 "$secret" "$(at 9001)" "node-a2=$(at 9002)/introspect" "node-b1=$(at 9003)/introspect" \
    "node-b2=$(at 9004)/introspect" "gateway-a=$(at 9010)" "gateway-b=$(at 9020)") || code=$?
while read -r name median most; do
    printf '    %-10s refused after %6s ms in the median, %6s ms at most\n' "$name" "$median" "$most"
done <<<"$seen"
step "ten tokens revoked at node a1 are refused everywhere within the bound" "0" "$code"
pay() { curl -s -u "tool:$secret" -d grant_type=client_credentials "$(at 9003)/token" | member access_token; }
token=$(pay)
at_gateway() { status -H "Authorization: Bearer $token" "$(at "$1")"; }
step "a token of cluster B is accepted in both clusters" "200 200" "$(at_gateway 9010) $(at_gateway 9020)"
if [[ $broker != none ]]; then
    end broker
    step "also without the broker" "200 200" "$(at_gateway 9010) $(at_gateway 9020)"
    sleep 7
    step "also when the leases obtained over it have expired" "200 200" "$(at_gateway 9010) $(at_gateway 9020)"
fi
curl -s -u "tool:$secret" -d "token=$token" "$(at 9004)/revoke" >/dev/null
sleep 5.1
step "revoked in cluster B, it is refused in both" "401 401" "$(at_gateway 9010) $(at_gateway 9020)"
finish
