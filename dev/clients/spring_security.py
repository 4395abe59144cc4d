"""A resource server with Spring Security, which accepts tokens of Postern's provider, directly and
behind the gateway."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request

from . import documents
from .keys import forged
from .process import READY_S, Server
from .provider import Provider
from .report import Report, Skip, equal, expect
from .stage import CACHE, HERE, Stage, program, wait_for

HOME = CACHE / "spring"
# How each of its applications is configured: see ResourceServer.java.
PROFILES = ("defaults", "audience", "rfc9068")
# Spring Security tolerates a clock difference of a minute.
TOLERATED_S = 60


class ResourceServer:
    """The running program, with one application for each configuration."""

    def __init__(self, provider: Provider, stage: Stage) -> None:
        self._provider, self._stage = provider, stage
        self.missing: Skip | None = None
        self.server: Server | None = None
        # Refused once it expired for longer than tolerated. Requested first, so that the wait is
        # spent on other checks.
        self.brief = provider.token("brief")
        self.refused_from = time.monotonic() + TOLERATED_S + 2

    def spawn(self) -> None:
        """Starts it without waiting; the start takes a few seconds."""
        try:
            java = program("java")
            if not (HOME / "version").exists():
                raise Skip("Spring Boot is not there; run dev/setup spring (its log: .cache/logs/setup-spring.log)")
        except Skip as missing:
            self.missing = missing
            return
        settings = self._stage.folder / "spring-application.yaml"
        text = documents.block("yaml", "resourceserver:")
        settings.write_text(documents.replaced(text, {documents.ISSUER: self._provider.issuer}))
        ports = [str(self._port(profile)) for profile in PROFILES]
        classes = os.pathsep.join([str(HOME / "classes"), str(HOME / "lib/*")])
        command = [
            # It runs for a minute beside everything else: start faster, optimise less.
            java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx300m", "-cp", classes, "orders.ResourceServer",
            self._provider.issuer, str(settings), *ports,
        ]  # fmt: skip
        self.server = self._stage.server("spring", command, self._port(PROFILES[-1])).spawn()

    def _port(self, profile: str) -> int:
        return self._stage.port(f"spring-{profile}")

    def await_ready(self) -> None:
        """Waits until every application answers. Then starts the gateway in front of the one with
        the documented settings."""
        if self.missing:
            raise self.missing
        assert self.server is not None
        for profile in PROFILES:
            wait_for(self.server, f"http://127.0.0.1:{self._port(profile)}/orders", 2 * READY_S, status=401)
        port, admin = self._stage.port("spring-gateway"), self._stage.port("spring-gateway-admin")
        configuration = self._stage.configuration(
            "spring.toml", FOLDER=self._stage.folder, ADMIN_PORT=admin, PORT=port, ISSUER=self._provider.issuer,
            SPRING_PORT=self._port("audience"),
        )  # fmt: skip
        self._stage.serve("spring-gateway", configuration, port, admin)

    def ask(self, profile: str, token: str, path: str = "/orders") -> tuple[int, dict, str]:
        """Status, response, and what Spring Security says in `WWW-Authenticate`. The profile
        `gateway` is the gateway."""
        url = f"http://127.0.0.1:{self._port(profile)}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer), ""
        except urllib.error.HTTPError as refused:
            return refused.code, {}, refused.headers.get("www-authenticate", "")

    def refuses(self, profile: str, token: str, reason: str) -> None:
        """Raises Fault unless the token is refused, with this reason."""
        status, _, said = self.ask(profile, token)
        equal("status", status, 401)
        expect(re.search(reason, said), f"the reason is {said!r}")


def run(provider: Provider, server: ResourceServer, stage: Stage, report: Report) -> None:
    """Runs all checks. The program was started before."""
    server.await_ready()
    with report.check("spring: the documented decoder is the one that is tested"):
        source = "".join((HERE / "spring/ResourceServer.java").read_text().split())
        shown = "".join(documents.block("java", "JwtDecoder").replace("@Bean", '@Bean @Profile("rfc9068")').split())
        expect(shown in source, "ResourceServer.java has another decoder")
    token, rfc9068 = provider.token("billing"), provider.token("rfc9068")
    with report.check("spring: the defaults accept a token of typ JWT, found by issuer-uri alone"):
        status, seen, said = server.ask("defaults", token)
        equal("status", (status, said), (200, ""))
        equal("token", seen, {"sub": "billing", "client_id": "billing", "typ": "JWT"})
    with report.check("spring: the defaults refuse typ at+jwt (Spring Security 6.5)"):
        server.refuses("defaults", rfc9068, r"typ \(type\) at\+jwt not allowed")
    with report.check("spring: the decoder for RFC 9068 accepts typ at+jwt, and nothing else"):
        status, seen, said = server.ask("rfc9068", rfc9068)
        equal("status", (status, said), (200, ""))
        equal("typ", seen["typ"], "at+jwt")
        server.refuses("rfc9068", token, "typ")
        server.refuses("rfc9068", provider.token("rfc9068", audience="invoices"), "aud claim is not valid")
    with report.check("spring: scopes are authorities"):
        more = provider.token("billing", scope="orders:write")
        equal("statuses", [server.ask("defaults", t, "/orders/archive")[0] for t in (token, more)], [403, 200])
    invoices = provider.token("invoicing")
    with report.check("spring: another audience is refused only where `audiences` is set"):
        equal("status without", server.ask("defaults", invoices)[0], 200)
        equal("status with the right one", server.ask("audience", token)[0], 200)
        server.refuses("audience", invoices, "aud claim is not valid")
    with report.check("spring: a forged token is refused"):
        server.refuses("defaults", forged(token), "[Ii]nvalid signature")
    behind(server, token, invoices, rfc9068, report)
    with report.check("spring: an expired token is refused after the tolerated minute"):
        time.sleep(max(0, server.refused_from - time.monotonic()))
        server.refuses("defaults", server.brief, "expired at")


def behind(server: ResourceServer, token: str, invoices: str, rfc9068: str, report: Report) -> None:
    """The same server behind the gateway."""
    with report.check("spring: behind the gateway, a route with forward_authorization hands on the token"):
        status, seen, _ = server.ask("gateway", token)
        equal("status", status, 200)
        equal("sub", seen["sub"], "billing")
    with report.check("spring: without forward_authorization the token stays at the gateway"):
        status, _, said = server.ask("gateway", token, "/stripped/orders")
        equal("status and reason of Spring Security", (status, said), (401, "Bearer"))
    with report.check("spring: the gateway refuses another audience, and Spring Security typ at+jwt"):
        status, _, said = server.ask("gateway", invoices)
        equal("status", status, 401)
        expect("aud claim" not in said, f"Spring Security was asked: {said}")
        status, _, said = server.ask("gateway", rfc9068)
        equal("status", status, 401)
        expect("at+jwt not allowed" in said, f"the reason is {said!r}")
