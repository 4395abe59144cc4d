"""gRPC through the gateway: every kind of call, errors, deadlines and metadata, over h2c and
TLS."""

from __future__ import annotations

import json
import os
import queue
import time
from concurrent import futures
from pathlib import Path

import grpc
from verdicts import CA, PLAIN, SECURE, TOKEN, check, equal

LARGEST = 64 << 20
TIMEOUT_S = 30
METADATA = (("authorization", f"Bearer {TOKEN}"),)
OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST), ("grpc.max_send_message_length", LARGEST),
    ("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0),
]  # fmt: skip


class Peer:
    """Calls of one service over one channel."""

    def __init__(self, channel: grpc.Channel, service: str = "clients.Peer") -> None:
        self.channel, self._service = channel, service

    def unary(self, method: str, request: bytes = b"", metadata=METADATA, timeout: float = TIMEOUT_S, **options):
        """Unary call: returns the response and the call."""
        call = self.channel.unary_unary(f"/{self._service}/{method}")
        return call.with_call(request, metadata=metadata, timeout=timeout, **options)

    def server_stream(self, method: str, request: bytes = b"", timeout: float = TIMEOUT_S):
        """Server streaming: returns the stream of responses."""
        return self.channel.unary_stream(f"/{self._service}/{method}")(request, metadata=METADATA, timeout=timeout)

    def client_stream(self, method: str, requests):
        """Client streaming: returns the response to a stream."""
        return self.channel.stream_unary(f"/{self._service}/{method}")(requests, metadata=METADATA, timeout=TIMEOUT_S)

    def bidirectional(self, method: str, requests):
        """Bidirectional streaming."""
        call = self.channel.stream_stream(f"/{self._service}/{method}")
        return call(requests, metadata=METADATA, timeout=TIMEOUT_S)


def error(call, *arguments, **options) -> grpc.RpcError:
    """Returns the error of a call that must fail."""
    try:
        answer = call(*arguments, **options)
    except grpc.RpcError as found:
        return found
    raise AssertionError(f"the call succeeded: {answer!r}")


def unary(peer: Peer) -> None:
    """Response, and metadata before and after it."""
    for request in (b"", b"x", bytes(range(256)) * 100):
        answer, call = peer.unary("Echo", request)
        equal("answer", answer, request)
        initial, trailing = dict(call.initial_metadata()), dict(call.trailing_metadata())
        equal("initial metadata", (initial["x-initial"], initial["x-initial-bin"]), ("first", b"\x00\xff"))
        equal("trailing metadata", (trailing["x-trailing"], trailing["x-trailing-bin"]), ("last", b"\x01\xfe"))


def concurrent(peer: Peer) -> None:
    """500 calls from 50 threads on one connection."""
    with futures.ThreadPoolExecutor(50) as pool:
        requests = [str(number).encode() for number in range(500)]
        answers = list(pool.map(lambda request: peer.unary("Echo", request)[0], requests))
    equal("answers", answers, requests)


def server_stream(peer: Peer) -> None:
    """1000 messages downstream, in order."""
    equal("messages", [int(m) for m in peer.server_stream("Count", b"1000")], list(range(1000)))
    equal("messages of an empty stream", list(peer.server_stream("Count", b"0")), [])


def client_stream(peer: Peer) -> None:
    """1000 messages upstream."""
    equal("count and bytes", peer.client_stream("Gather", (bytes(1000) for _ in range(1000))), b"1000 1000000")


def ping_pong(peer: Peer) -> None:
    """Each message is sent only after the response to the previous one."""
    turns: queue.Queue = queue.Queue()
    call = peer.bidirectional("PingPong", iter(turns.get, None))
    for number in range(1000):
        turns.put(str(number).encode())
        equal("answer", next(call), f"pong {number}".encode())
    turns.put(None)
    equal("after the end", list(call), [])
    equal("status", call.code(), grpc.StatusCode.OK)


def large(peer: Peer) -> None:
    """16 MiB in both directions, and 4 MiB in each of eight calls at once."""
    payload = os.urandom(16 << 20)
    equal("16 MiB came back", peer.unary("Echo", payload)[0] == payload, True)
    part = payload[: 4 << 20]
    with futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: peer.unary("Echo", part)[0] == part, range(8)))
    equal("8 × 4 MiB came back", answers, [True] * 8)


def compressed(peer: Peer) -> None:
    """The gateway passes compressed messages unchanged."""
    request = b"a" * 100_000
    equal("answer", peer.unary("Echo", request, compression=grpc.Compression.Gzip)[0], request)


def deadline(peer: Peer) -> None:
    """The client's deadline expires in time, and the server is notified."""
    before = int(peer.unary("GivenUp")[0])
    began = time.monotonic()
    found = error(peer.unary, "Sleep", timeout=0.5)
    equal("status", found.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
    assert time.monotonic() - began < 5, "the deadline came late"
    await_given_up(peer, before + 1)


def cancel(peer: Peer) -> None:
    """A cancelled stream ends at the server."""
    before = int(peer.unary("GivenUp")[0])
    call = peer.server_stream("Drip")
    equal("first message", next(call), b"first")
    call.cancel()
    equal("status", call.code(), grpc.StatusCode.CANCELLED)
    await_given_up(peer, before + 1)


def await_given_up(peer: Peer, wanted: int) -> None:
    """Waits until the server has counted this many cancelled calls."""
    end = time.monotonic() + 10
    while (count := int(peer.unary("GivenUp")[0])) != wanted:
        assert time.monotonic() < end, f"the server knows of {count} calls given up, not {wanted}"
        time.sleep(0.05)


def timeout_arrives(peer: Peer) -> None:
    """The server receives the deadline (grpc-timeout)."""
    left = json.loads(peer.unary("Who", timeout=12)[0])["seconds_left"]
    # clients round the value that they send to a few digits
    assert left is not None and 5 < left < 13, f"seconds left at the server: {left}"


def statuses(peer: Peer) -> None:
    """Errors before any message (trailers only): code, message and metadata arrive unchanged."""
    for wanted in grpc.StatusCode:
        if wanted is grpc.StatusCode.OK:
            continue
        found = error(peer.unary, "Fail", str(wanted.value[0]).encode())
        equal("status", found.code(), wanted)
        equal("message", found.details(), "100% wrong: grün\nnext line")
        trailing = dict(found.trailing_metadata())
        equal("x-reason", trailing.get("x-reason"), "asked for")
        equal("details", trailing.get("grpc-status-details-bin"), b"\x08\x05\x12\x00")


def late_error(peer: Peer) -> None:
    """An error after messages: the messages arrive, then the error."""
    call = peer.server_stream("FailLate")
    messages = []
    found = error(lambda: messages.extend(call))
    equal("messages", messages, [b"1", b"2", b"3"])
    equal("status", (found.code(), found.details()), (grpc.StatusCode.DATA_LOSS, "the rest is lost"))


def identity(peer: Peer) -> None:
    """The server receives the caller's identity, but neither the token nor a client's claims about
    it."""
    forged = (("x-forwarded-user", "root"), ("x-forwarded-groups", "admins"), ("x-mine", "kept"), ("x-mine-bin", b"\x07"))
    pairs = json.loads(peer.unary("Who", metadata=METADATA + forged)[0])["metadata"]

    def values(name: str) -> list[str]:
        return [value for key, value in pairs if key == name]

    equal("x-forwarded-user", values("x-forwarded-user"), ["alice"])
    equal("x-forwarded-groups", values("x-forwarded-groups"), ["staff"])
    equal("authorization", values("authorization"), [])
    equal("metadata of the client", (values("x-mine"), values("x-mine-bin")), (["kept"], ["07"]))


def refused(peer: Peer) -> None:
    """No token is UNAUTHENTICATED, a missing group PERMISSION_DENIED, no route UNIMPLEMENTED; for
    streams too."""
    equal("without a token", error(peer.unary, "Echo", metadata=()).code(), grpc.StatusCode.UNAUTHENTICATED)
    admin, nobody = Peer(peer.channel, "clients.Admin"), Peer(peer.channel, "clients.Nobody")
    equal("without the group", error(admin.unary, "Echo").code(), grpc.StatusCode.PERMISSION_DENIED)
    equal("without a route", error(nobody.unary, "Echo").code(), grpc.StatusCode.UNIMPLEMENTED)
    stream = admin.bidirectional("PingPong", iter([b"x"] * 10))
    equal("a stream without the group", error(lambda: list(stream)).code(), grpc.StatusCode.PERMISSION_DENIED)
    equal("a method that is not there", error(peer.unary, "NoSuch").code(), grpc.StatusCode.UNIMPLEMENTED)


CHECKS = {
    "unary, metadata before and after": unary,
    "500 calls from 50 threads on one connection": concurrent,
    "server stream of 1000 messages": server_stream,
    "client stream of 1000 messages": client_stream,
    "bidirectional ping-pong of 1000 messages": ping_pong,
    "messages of 16 MiB": large,
    "compressed messages": compressed,
    "deadline exceeded, and the server hears of it": deadline,
    "a cancelled stream ends at the server": cancel,
    "the deadline arrives at the server": timeout_arrives,
    "every status code, trailers only": statuses,
    "an error behind messages": late_error,
    "the server sees who calls": identity,
    "refusals of the gateway": refused,
}

trust = grpc.ssl_channel_credentials(Path(CA).read_bytes())
secure_host = [("grpc.default_authority", f"secure.localhost:{SECURE.rpartition(':')[2]}")]
WAYS = {
    "h2c to h2c": lambda: grpc.insecure_channel(PLAIN, OPTIONS),
    "TLS to h2c": lambda: grpc.secure_channel(SECURE, trust, OPTIONS),
    "TLS to TLS": lambda: grpc.secure_channel(SECURE, trust, OPTIONS + secure_host),
}
for way, channel in WAYS.items():
    with channel() as opened:
        peer = Peer(opened)
        for name, run in CHECKS.items():
            # the gateway's own refusals do not depend on the upstream
            if way != "TLS to TLS" or run is not refused:
                check(f"{name}, {way}", run, peer)
