#!/usr/bin/env python3
"""What curl cannot do in the self-check: a kernel's WebSocket, and streams word by word.

It needs the Python packages websocket-client and grpcio. PORT is the gateway's. SSL_CERT_FILE names
the certificate authority that verifies it.

  client.py PORT kernel COOKIES ORIGIN      computes 6 * 7 in a notebook's kernel; prints the result
  client.py PORT events TOKEN REQUEST       prints the words of the model
  client.py PORT grpc TOKEN REQUEST         the same over gRPC

COOKIES is curl's cookie file. ORIGIN is that of the page that opens the WebSocket. Words that
arrive before the last one was sent are followed by `live`, those of a response that did not arrive
before it was complete by `late`. A response without its end is followed by `cut`. If the request is
refused, only the status is printed.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import websocket

PORT = int(sys.argv[1])
TIMEOUT_S = 60
JUPYTER = "jupyter.localhost"
MODEL = "model.localhost"
AUTHORITY = os.environ["SSL_CERT_FILE"]


def connect() -> http.client.HTTPSConnection:
    """A connection to the gateway. Not every resolver knows names below localhost."""
    return http.client.HTTPSConnection("127.0.0.1", PORT, timeout=TIMEOUT_S, context=ssl.create_default_context(cafile=AUTHORITY))


def cookies(file: str) -> dict[str, str]:
    """The cookies of JupyterLab's host."""
    lines = [line.removeprefix("#HttpOnly_").split("\t") for line in Path(file).read_text().splitlines()]
    return {line[5]: line[6] for line in lines if line[0] == JUPYTER}


def call(method: str, path: str, jar: dict[str, str], body: object = None) -> dict:
    """Calls JupyterLab as its pages do, and returns its answer."""
    connection = connect()
    headers = {
        "Host": f"{JUPYTER}:{PORT}",
        "Cookie": "; ".join(f"{name}={value}" for name, value in jar.items()),
        "X-XSRFToken": jar["_xsrf"],
        "Content-Type": "application/json",
    }
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= http.client.BAD_REQUEST:
        sys.exit(f"{method} {path}: {answer.status} {text!r}")
    return json.loads(text or b"{}")


def kernel(file: str, origin: str) -> str:
    """The result of a cell, or the status and code of the refused handshake."""
    jar = cookies(file)
    session = {"path": "Report #3.ipynb", "name": "Report #3.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    started = call("POST", "/api/sessions", jar, session)
    try:
        return compute(started["kernel"]["id"], jar, origin)
    finally:
        call("DELETE", f"/api/sessions/{started['id']}", jar)


def compute(kernel_id: str, jar: dict[str, str], origin: str) -> str:
    """Executes a cell over the kernel's WebSocket."""
    own = uuid.uuid4().hex
    try:
        socket = websocket.create_connection(
            f"wss://127.0.0.1:{PORT}/api/kernels/{kernel_id}/channels?session_id={own}", host=f"{JUPYTER}:{PORT}", origin=origin,
            cookie="; ".join(f"{name}={value}" for name, value in jar.items()), timeout=TIMEOUT_S,
            http_no_proxy=["127.0.0.1"], sslopt={"ca_certs": AUTHORITY},
        )  # fmt: skip
    except websocket.WebSocketBadStatusException as refused:
        # The gateway's responses have a code (RFC 9457); JupyterLab would refuse it too.
        return f"{refused.status_code} {json.loads(refused.resp_body or b'{}').get('code')}"
    identifier = uuid.uuid4().hex
    head = {"msg_id": identifier, "username": "", "session": own, "msg_type": "execute_request", "version": "5.3"}
    cell = {"code": "6 * 7", "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = {"header": head, "parent_header": {}, "metadata": {}, "content": cell, "channel": "shell", "buffers": []}
    socket.send(json.dumps(message))
    while True:
        answer = json.loads(socket.recv())
        if answer["parent_header"].get("msg_id") == identifier and answer["msg_type"] == "execute_result":
            socket.close()
            return answer["content"]["data"]["text/plain"]


def show(messages: Iterator[bytes]) -> None:
    """Prints the words, and whether the first arrived before the last was sent."""
    said, first, last, end = [], None, None, "cut"
    for message in messages:
        if message == b"[DONE]":
            end = ""
            break
        word = json.loads(message)
        first = first or time.monotonic()
        last = word["sent"]
        said.append(word["text"])
        # In a pipe, a reader may wait for the first word.
        print(word["text"], end=" ", flush=True)
    if not said:
        return
    print(end or ("live" if first < last else "late"))


def events(token: str, request: str) -> Iterator[bytes]:
    """The data of server-sent events, up to the end of the response or its being cut."""
    connection = connect()
    headers = {"Host": f"{MODEL}:{PORT}", "Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", request, headers)
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        print(answer.status)
        return
    try:
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ").rstrip(b"\n")
    except (OSError, http.client.HTTPException):
        return


def stream(token: str, request: str) -> Iterator[bytes]:
    """The messages of a gRPC stream."""
    options = [("grpc.ssl_target_name_override", MODEL), ("grpc.enable_http_proxy", 0)]
    trust = grpc.ssl_channel_credentials(Path(AUTHORITY).read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{PORT}", trust, options) as channel:
        infer = channel.unary_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        try:
            yield from infer(request.encode(), metadata=[("authorization", f"Bearer {token}")], timeout=TIMEOUT_S)
        except grpc.RpcError as refused:
            print(refused.code().name)
            return
        yield b"[DONE]"


if sys.argv[2] == "kernel":
    print(kernel(*sys.argv[3:]))
else:
    show((events if sys.argv[2] == "events" else stream)(*sys.argv[3:]))
