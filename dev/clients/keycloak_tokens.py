"""Keycloak's tokens: by discovery, roles as groups, introspection, and key rotation."""

from __future__ import annotations

import subprocess

from . import keycloak_introspection
from .keycloak import ALGORITHMS, REALM, ROLE, Keycloak, Shop, await_until, header
from .report import Report, Skip, equal, expect
from .stage import Stage

# A key set is requested on demand at most once in 10 s, which is also the shortest refresh
# interval.
TURN_S = 10
PATIENCE_S = 2 * TURN_S + 5


def run(keycloak: Keycloak, stage: Stage, report: Report) -> None:
    """Runs all checks. Keycloak was started before."""
    if keycloak.server is None:
        raise Skip("Keycloak did not start")
    keycloak.await_ready()
    shop = Shop(keycloak, stage)
    shop.create_realm(keycloak_introspection.lightweight_client(), keycloak_introspection.gateway_client())
    signed = {name: shop.robot(f"robot-{name}") for name in ALGORITHMS}
    with report.check("keycloak: the gateway finds the keys by discovery and is ready"):
        shop.start_gateway()
    tokens(shop, report)
    for name, token in signed.items():
        # the longer digests are accepted only if configured
        wanted, text = (401, "refused: it is not configured") if name.endswith("512") else (200, "accepted")
        with report.check(f"keycloak: a token signed with {name} is {text}"):
            equal("algorithm", header(token)["alg"], name)
            equal("status", shop.ask(token)[0], wanted)
    with report.check("keycloak: `postern token` gets a token that is accepted"):
        command = [str(stage.postern), "token", "--issuer", keycloak.issuer, "--client-id", "robot", "--client-secret", "-"]
        done = subprocess.run(command, input=b"secret of robot", capture_output=True, timeout=30, check=False)
        equal("exit code", done.returncode, 0)
        equal("status", shop.ask(done.stdout.decode().strip())[0], 200)
    keycloak_introspection.run(keycloak, shop, stage, report)
    keys(keycloak, shop, report)


def tokens(shop: Shop, report: Report) -> None:
    """Which of Keycloak's tokens are access tokens for this gateway, and what they permit."""

    def sent(seen: dict, name: str) -> list[str]:
        return [value for key, value in seen["headers"] if key.lower() == name]

    with report.check("keycloak: a service account's token is accepted, and its role is a group"):
        status, seen = shop.ask(shop.robot(), "/orders/managers/1")
        equal("status", status, 200)
        equal("X-Forwarded-User", sent(seen, "x-forwarded-user"), ["service-account-robot"])
        expect(ROLE in sent(seen, "x-forwarded-groups")[0].split(","), f"groups are {sent(seen, 'x-forwarded-groups')}")
    alice = shop.person("alice")
    with report.check("keycloak: a person's role opens what asks for it, and only that person's"):
        status, seen = shop.ask(alice["access_token"], "/orders/managers/1")
        equal("alice's status", status, 200)
        equal("X-Forwarded-User", sent(seen, "x-forwarded-user"), ["alice"])
        equal("X-Forwarded-Email", sent(seen, "x-forwarded-email"), ["alice@example.test"])
        bob = shop.person("bob")["access_token"]
        equal("bob's status", (shop.ask(bob)[0], shop.ask(bob, "/orders/managers/1")[0]), (200, 403))
    for name, token in [
        ("a token for another audience", lambda: shop.robot("stray")),
        ("an ID token", lambda: alice["id_token"]),
        ("an ID token whose audience is this gateway", lambda: shop.person("alice", "talkative")["id_token"]),
        ("a refresh token", lambda: alice["refresh_token"]),
    ]:
        with report.check(f"keycloak: {name} is refused"):
            equal("status", shop.ask(token())[0], 401)


def keys(keycloak: Keycloak, shop: Shop, report: Report) -> None:
    """Key rotation. The gateway fetches keys every five minutes, later every ten seconds."""
    first = [shop.robot() for _ in range(3)]
    expect(shop.ask(first[0])[0] == 200, "the first key's token is not accepted")
    with report.check("keycloak: after a rotation the unknown key is fetched on demand"):
        keycloak.add_key(REALM, "second", 200)
        second = shop.robot()
        expect(header(second)["kid"] != header(first[0])["kid"], "Keycloak still signs with the first key")
        await_until(lambda: shop.ask(second)[0] == 200, TURN_S + 5, lambda: f"the answer was {shop.ask(second)[0]}")
    with report.check("keycloak: the old key's tokens hold while it is published, known or not"):
        equal("statuses", [shop.ask(token)[0] for token in first[:2]], [200, 200])
    with report.check("keycloak: a reload keeps the keys"):
        shop.reload("10s")
        equal("statuses", [shop.ask(token)[0] for token in (first[0], second)], [200, 200])
    with report.check("keycloak: tokens of a disabled key are refused after the refresh, remembered or not"):
        keycloak.disable_key(REALM, "rsa-generated")
        await_until(lambda: shop.ask(first[0])[0] == 401, PATIENCE_S, lambda: "the token is still accepted")
        equal("statuses, a new and the other key's", [shop.ask(t)[0] for t in (first[2], second, shop.robot())], [401, 200, 200])
    with report.check("keycloak: tokens of a removed key are refused after the refresh"):
        keycloak.add_key(REALM, "third", 300)
        third = shop.robot()
        keycloak.admin("DELETE", f"/{REALM}/components/{keycloak.key_provider(REALM, 'second')['id']}")
        await_until(lambda: shop.ask(second)[0] == 401, PATIENCE_S, lambda: "the token is still accepted")
        equal("status of the third key's", shop.ask(third)[0], 200)
    with report.check("keycloak: with Keycloak gone, known keys go on serving, tokens never seen included"):
        unseen = shop.robot()
        keycloak.server.stop()
        equal("statuses", [shop.ask(token)[0] for token in (third, unseen, second)], [200, 200, 401])
