"""httpx over HTTP/2: many streams at once on one connection."""

from __future__ import annotations

import asyncio
import hashlib
import random
import ssl

import httpx
from verdicts import BEARER, CA, PLAIN, SECURE, check, equal

ONE_CONNECTION = httpx.Limits(max_connections=1, max_keepalive_connections=1)


def client(**options: object) -> httpx.AsyncClient:
    """A client that trusts the gateway's certificate authority."""
    settings = {
        "http2": True, "verify": ssl.create_default_context(cafile=CA), "headers": BEARER, "limits": ONE_CONNECTION,
        "base_url": f"https://{SECURE}", "timeout": 30, "trust_env": False,
    }  # fmt: skip
    return httpx.AsyncClient(**(settings | options))


def h2(answer: httpx.Response) -> httpx.Response:
    """Fails unless the response is a 200 over HTTP/2."""
    equal("status and version", (answer.status_code, answer.http_version), (200, "HTTP/2"))
    return answer


async def streams(count: int) -> None:
    """Each stream sends its own body and must get the response to that one."""
    spring = random.Random(7)
    bodies = [spring.randbytes(spring.randrange(0, 60_000)) for _ in range(count)]
    async with client() as session:
        answers = await asyncio.gather(*(session.post(f"/api/{n}", content=b) for n, b in enumerate(bodies)))
    for number, (answer, body) in enumerate(zip(answers, bodies, strict=True)):
        told = h2(answer).json()
        equal("target", told["target"], f"/{number}")
        equal("digest", told["body"]["sha256"], hashlib.sha256(body).hexdigest())


async def both_ways() -> None:
    """Large bodies in both directions at once share the connection's windows."""
    up = bytes(4 << 20)
    async with client() as session:
        jobs = [session.post("/api/up", content=up) for _ in range(4)]
        jobs += [session.get("/api/bytes/4194304") for _ in range(4)]
        answers = await asyncio.gather(*jobs)
    for answer in answers[:4]:
        equal("bytes up", h2(answer).json()["body"]["bytes"], len(up))
    for answer in answers[4:]:
        equal("bytes down", len(h2(answer).content), 4 << 20)


async def slow_reader() -> None:
    """A stream that the client does not read must not block the others on the connection."""
    async with client() as session:
        async with session.stream("GET", "/api/bytes/1000000") as unread:
            answers = await asyncio.gather(*(session.get(f"/api/{n}") for n in range(50)))
            content = await unread.aread()
    equal("answers beside the unread one", {h2(answer).status_code for answer in answers}, {200})
    equal("bytes of the unread one", len(content), 1_000_000)


async def slow_answers() -> None:
    """100 responses of half a second each, at once on one connection, take about that long
    together."""
    async with client() as session:
        jobs = [session.get("/api/slow", params={"delay": "500ms"}) for _ in range(100)]
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*jobs)
        took = asyncio.get_running_loop().time() - began
    equal("statuses", {h2(answer).status_code for answer in answers}, {200})
    assert took < 10, f"100 answers of 0.5 s took {took:.1f} s: the streams wait for each other"


async def many_fields() -> None:
    """Repeated and large fields through HPACK and back."""
    headers = [("x-list", str(n)) for n in range(40)] + [("x-long", "v" * 8000), ("cookie", "a=1"), ("cookie", "b=2")]
    async with client() as session:
        for _ in range(3):
            told = h2(await session.get("/api/x", headers=headers)).json()["headers"]
            values = [value for name, value in told if name.lower() == "x-list"]
            equal("x-list", values, [str(n) for n in range(40)])
            equal("x-long", [len(v) for k, v in told if k.lower() == "x-long"], [8000])
            # RFC 9113 section 8.2.3: cookie crumbs are joined before they are sent over HTTP/1.1
            equal("cookie", [v for k, v in told if k.lower() == "cookie"], ["a=1; b=2"])


async def http1() -> None:
    """The same client over HTTP/1.1: keep-alive, and a generator as the body."""

    async def parts():
        for n in range(100):
            yield bytes([n]) * 1000

    async with client(http2=False, base_url=f"http://{PLAIN}") as session:
        for _ in range(10):
            answer = await session.post("/api/x", content=parts())
            equal("status and version", (answer.status_code, answer.http_version), (200, "HTTP/1.1"))
            equal("bytes", answer.json()["body"]["bytes"], 100_000)


async def refused_beside_granted() -> None:
    """Refused and permitted streams interleave on one connection."""
    async with client(headers={}) as session:
        jobs = [session.get(f"/api/{n}", headers=BEARER if n % 2 else {}) for n in range(100)]
        answers = await asyncio.gather(*jobs)
    equal("statuses", [answer.status_code for answer in answers], [200 if n % 2 else 401 for n in range(100)])


CHECKS = {
    "200 streams at once on one connection, each with its own body": lambda: streams(200),
    "4 MiB up and down at once, four of each": both_ways,
    "an unread stream does not hold up 50 others": slow_reader,
    "100 slow answers at once do not wait for each other": slow_answers,
    "40 repeated fields, a long one and cookie crumbs": many_fields,
    "refused and granted streams interleave": refused_beside_granted,
    "HTTP/1.1 with bodies of unknown length": http1,
}

for name, coroutine in CHECKS.items():
    check(name, lambda coroutine=coroutine: asyncio.run(coroutine()))
