"""websocket-client through the gateway to an echo service."""

from __future__ import annotations

import os
import struct

import websocket
from verdicts import BEARER, CA, PLAIN, SECURE, check, equal
from websocket import ABNF

HEADER = [f"{name}: {value}" for name, value in BEARER.items()]
PATH = "/live/socket"


def connect(scheme: str, header: list[str] | None = None, **options: object) -> websocket.WebSocket:
    """A socket through the gateway."""
    place = SECURE if scheme == "wss" else PLAIN
    if scheme == "wss":
        options["sslopt"] = {"ca_certs": CA}
    return websocket.create_connection(
        f"{scheme}://{place}{PATH}", header=HEADER if header is None else header, timeout=20,
        http_no_proxy=["localhost"], **options,
    )  # fmt: skip


def texts(scheme: str) -> None:
    """Text in order, also beyond ASCII."""
    socket = connect(scheme)
    for text in ["hello", "", "grüße, 世界 🌍", "x" * 125, "x" * 126, "x" * 65_535, "x" * 65_536]:
        socket.send(text)
        equal("kind and echo", socket.recv_data(), (ABNF.OPCODE_TEXT, text.encode()))
    socket.close()


def binary(scheme: str) -> None:
    """Bytes of every value."""
    socket = connect(scheme)
    payload = bytes(range(256)) * 16
    socket.send_binary(payload)
    equal("kind and echo", socket.recv_data(), (ABNF.OPCODE_BINARY, payload))
    socket.close()


def ping(scheme: str) -> None:
    """The other end answers a ping with its payload."""
    socket = connect(scheme)
    socket.ping(b"are you there")
    opcode, frame = socket.recv_data_frame(control_frame=True)
    equal("kind and payload", (opcode, frame.data), (ABNF.OPCODE_PONG, b"are you there"))
    socket.pong(b"unasked")
    socket.send("still here")
    equal("echo", socket.recv(), "still here")
    socket.close()


def large(scheme: str) -> None:
    """One message of 8 MiB, and a burst of small ones."""
    socket = connect(scheme)
    payload = os.urandom(8 << 20)
    socket.send_binary(payload)
    equal("large echo", socket.recv() == payload, True)
    for number in range(1000):
        socket.send(str(number))
    equal("burst", [socket.recv() for _ in range(1000)], [str(number) for number in range(1000)])
    socket.close()


def fragments(scheme: str) -> None:
    """A message in three frames comes back complete."""
    socket = connect(scheme)
    socket.send_frame(ABNF.create_frame("one ", ABNF.OPCODE_TEXT, fin=0))
    socket.send_frame(ABNF.create_frame("two ", ABNF.OPCODE_CONT, fin=0))
    socket.send_frame(ABNF.create_frame("three", ABNF.OPCODE_CONT, fin=1))
    equal("message", socket.recv(), "one two three")
    socket.close()


def close(scheme: str) -> None:
    """The closing handshake carries its code and reason both ways; then the connection ends."""
    socket = connect(scheme)
    socket.send_close(4001, b"that is all")
    opcode, frame = socket.recv_data_frame(control_frame=True)
    equal("close", (opcode, frame.data), (ABNF.OPCODE_CLOSE, struct.pack("!H", 4001) + b"that is all"))
    equal("after the close", socket.sock.recv(1), b"")
    socket.shutdown()


def refused() -> None:
    """Without a token the protocol is not switched."""
    try:
        connect("ws", header=[])
    except websocket.WebSocketBadStatusException as refusal:
        equal("status", refusal.status_code, 401)
        equal("challenge", refusal.resp_headers["www-authenticate"], 'Bearer realm="clients"')
        return
    raise AssertionError("the socket opened without a token")


def many() -> None:
    """50 sockets at once."""
    sockets = [connect("ws") for _ in range(50)]
    for number, socket in enumerate(sockets):
        socket.send(f"socket {number}")
    equal("echoes", [socket.recv() for socket in sockets], [f"socket {number}" for number in range(50)])
    for socket in sockets:
        socket.close()


for scheme in ("ws", "wss"):
    check(f"text over {scheme}", texts, scheme)
    check(f"binary over {scheme}", binary, scheme)
    check(f"ping and pong over {scheme}", ping, scheme)
    check(f"8 MiB in one message, then 1000 small ones, over {scheme}", large, scheme)
    check(f"a message in fragments over {scheme}", fragments, scheme)
    check(f"close with code and reason over {scheme}", close, scheme)
check("no token, no socket: 401 with a challenge", refused)
check("50 sockets at once", many)
