#!/usr/bin/env python3
"""Stand-in for a model server, over HTTP and gRPC. It needs the Python package grpcio.

  model.py HTTP_PORT GRPC_PORT

Its answers are the words of the prompt, one after another.

  GET  /v1/models                                        the list of models
  POST /v1/completions                                   server-sent events, one for each word
       {"prompt": "one two", "thinks": 2, "pause": 0.2}
  /inference.GRPCInferenceService/ModelStreamInfer       the same as a stream of messages

`thinks` and `pause` are seconds before the first word, and between words. A real server takes them
for its work. A server that follows KServe's protocol has protobuf messages; here they are JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import grpc

MODELS = {"object": "list", "data": [{"id": "parrot", "object": "model"}]}


def words(request: dict) -> Iterator[bytes]:
    """Each word as JSON, with the time at which it was sent on this machine's monotonic clock."""
    time.sleep(request.get("thinks", 0))
    for number, word in enumerate(request["prompt"].split()):
        if number:
            time.sleep(request.get("pause", 0))
        yield json.dumps({"text": word, "sent": time.monotonic()}).encode()


class Model(BaseHTTPRequestHandler):
    """The model over HTTP."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The list of models. `?thinks=4` delays it, like a fault of the server."""
        time.sleep(float(parse_qs(urlsplit(self.path).query).get("thinks", ["0"])[0]))
        body = json.dumps(MODELS).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Streams the words."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = words(request)
        # The head follows when the first word is known.
        first = next(answer)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event(first)
        for word in answer:
            self.event(word)
        self.event(b"[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data: bytes) -> None:
        """Sends one server-sent event in a chunk of its own."""
        event = b"data: " + data + b"\n\n"
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    """A server for clients that do not wait for the end."""

    def handle_error(self, request: object, address: object) -> None:
        """Logs in one line that a client left."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, address)
        else:
            print(f"{address} left", file=sys.stderr)


def infer(request: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
    """The model over gRPC."""
    return words(json.loads(request))


methods = {"ModelStreamInfer": grpc.unary_stream_rpc_method_handler(infer)}
server = grpc.server(ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods),))
server.add_insecure_port(f"127.0.0.1:{sys.argv[2]}")
server.start()
Server(("127.0.0.1", int(sys.argv[1])), Model).serve_forever()
