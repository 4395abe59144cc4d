"""JupyterLab through the gateway: a notebook with `#` in its name, and its kernel over a WebSocket."""

from __future__ import annotations

import http.client
import json
import os
import uuid

import websocket
from verdicts import BEARER, check, equal

PLACE = os.environ["JUPYTER"]
HOST = os.environ["JUPYTER_HOST"]
NAME = "Report #3.ipynb"
# As browsers encode it.
ENCODED = "Report%20%233.ipynb"
CELL = {"id": "cell-1", "cell_type": "code", "source": "6 * 7", "metadata": {}, "outputs": [], "execution_count": None}


def send(method: str, target: str, body: object = None) -> tuple[int, bytes]:
    """Sends a request with the caller's token."""
    connection = http.client.HTTPConnection(PLACE, timeout=60)
    try:
        headers = {"Host": HOST, "Content-Type": "application/json"} | BEARER
        connection.request(method, target, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def notebook() -> None:
    """It is stored, listed and read by its name."""
    content = {"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    status, _ = send("PUT", f"/api/contents/{ENCODED}", {"type": "notebook", "content": content})
    equal("the status", status, 201)
    status, body = send("GET", f"/api/contents/{ENCODED}?content=1")
    read = json.loads(body)
    equal("the notebook", (status, read["name"], read["content"]["cells"][0]["source"]), (200, NAME, "6 * 7"))


def page() -> None:
    """The page of the notebook opens."""
    status, body = send("GET", f"/lab/tree/{ENCODED}")
    equal("status and kind", (status, b"JupyterLab" in body), (200, True))


def kernel() -> None:
    """The notebook's kernel computes, over a WebSocket."""
    session = {"path": NAME, "name": NAME, "type": "notebook", "kernel": {"name": "python3"}}
    status, body = send("POST", "/api/sessions", session)
    equal("the status", status, 201)
    kernel_id = json.loads(body)["kernel"]["id"]
    header = [f"{name}: {value}" for name, value in BEARER.items()]
    socket = websocket.create_connection(
        f"ws://{PLACE}/api/kernels/{kernel_id}/channels", header=header, host=HOST, origin=f"http://{HOST}", timeout=60,
        http_no_proxy=["127.0.0.1"],
    )  # fmt: skip
    identifier = uuid.uuid4().hex
    head = {"msg_id": identifier, "username": "", "session": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3"}
    content = {"code": "6 * 7", "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = {"header": head, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}
    socket.send(json.dumps(message))
    result = None
    while result is None:
        answer = json.loads(socket.recv())
        if answer["parent_header"].get("msg_id") == identifier and answer["msg_type"] == "execute_result":
            result = answer["content"]["data"]["text/plain"]
    equal("the result", result, "42")
    socket.close()
    equal("the end", send("DELETE", f"/api/kernels/{kernel_id}")[0], 204)


def stranger() -> None:
    """Without a token nothing passes."""
    connection = http.client.HTTPConnection(PLACE, timeout=20)
    connection.request("GET", f"/api/contents/{ENCODED}", headers={"Host": HOST})
    equal("the status", connection.getresponse().status, 401)
    connection.close()


check("a notebook called Report #3.ipynb is stored and read", notebook)
check("its page opens", page)
check("its kernel computes over a WebSocket", kernel)
check("a stranger is refused", stranger)
