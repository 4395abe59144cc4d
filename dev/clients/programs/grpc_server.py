"""gRPC service for the client beside this file. Messages are bytes: the tests concern transport only.

    grpc_server.py PLAIN_PORT TLS_PORT CERTIFICATE KEY
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from concurrent import futures
from pathlib import Path

import grpc

LARGEST = 64 << 20
# Number of calls that the client cancelled, which the client queries.
_given_up = 0
_lock = threading.Lock()


def _count_given_up(context: grpc.ServicerContext, done: threading.Event) -> None:
    def ended() -> None:
        global _given_up
        if not done.is_set():
            with _lock:
                _given_up += 1
        done.set()

    context.add_callback(ended)


def echo(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Returns the request."""
    context.send_initial_metadata((("x-initial", "first"), ("x-initial-bin", b"\x00\xff")))
    context.set_trailing_metadata((("x-trailing", "last"), ("x-trailing-bin", b"\x01\xfe")))
    return request


def who(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Returns the received metadata."""
    pairs = [(key, value.hex() if isinstance(value, bytes) else value) for key, value in context.invocation_metadata()]
    return json.dumps({"metadata": pairs, "seconds_left": context.time_remaining()}).encode()


def count(request: bytes, context: grpc.ServicerContext):
    """Sends the requested number of messages."""
    for number in range(int(request)):
        yield str(number).encode()


def gather(requests, context: grpc.ServicerContext) -> bytes:
    """Returns the number of messages and bytes received."""
    sizes = [len(message) for message in requests]
    return f"{len(sizes)} {sum(sizes)}".encode()


def ping_pong(requests, context: grpc.ServicerContext):
    """Answers each message before it reads the next."""
    for message in requests:
        yield b"pong " + message


def sleep(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Never answers; notices when the client cancels."""
    done = threading.Event()
    _count_given_up(context, done)
    done.wait(30)
    return b""


def drip(request: bytes, context: grpc.ServicerContext):
    """Sends a first message, then nothing until the client cancels."""
    done = threading.Event()
    _count_given_up(context, done)
    yield b"first"
    done.wait(30)


def given_up(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Returns the number of cancelled calls."""
    with _lock:
        return str(_given_up).encode()


def fail(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Returns the status that the request names, before any message."""
    context.set_trailing_metadata((("x-reason", "asked for"), ("grpc-status-details-bin", b"\x08\x05\x12\x00")))
    context.abort(next(c for c in grpc.StatusCode if c.value[0] == int(request)), "100% wrong: grün\nnext line")


def fail_late(request: bytes, context: grpc.ServicerContext):
    """Sends three messages, then an error."""
    yield from (b"1", b"2", b"3")
    context.abort(grpc.StatusCode.DATA_LOSS, "the rest is lost")


UNARY = {"Echo": echo, "Who": who, "Sleep": sleep, "GivenUp": given_up, "Fail": fail}
HANDLERS = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in UNARY.items()} | {
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Drip": grpc.unary_stream_rpc_method_handler(drip),
    "FailLate": grpc.unary_stream_rpc_method_handler(fail_late),
    "Gather": grpc.stream_unary_rpc_method_handler(gather),
    "PingPong": grpc.stream_stream_rpc_method_handler(ping_pong),
}


def main() -> None:
    """Serves until SIGTERM."""
    plain, secure, certificate, key = sys.argv[1:]
    options = [("grpc.max_receive_message_length", LARGEST), ("grpc.max_send_message_length", LARGEST), ("grpc.so_reuseport", 0)]
    server = grpc.server(futures.ThreadPoolExecutor(64), options=options)
    server.add_generic_rpc_handlers([
        grpc.method_handlers_generic_handler(service, HANDLERS) for service in ("clients.Peer", "clients.Admin")
    ])  # fmt: skip
    server.add_insecure_port(f"127.0.0.1:{plain}")
    credentials = grpc.ssl_server_credentials([(Path(key).read_bytes(), Path(certificate).read_bytes())])
    server.add_secure_port(f"127.0.0.1:{secure}", credentials)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server.start()
    stop.wait()
    server.stop(0).wait()


main()
