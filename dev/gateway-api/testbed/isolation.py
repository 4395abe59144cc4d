"""Namespaces of the kernel for a whole run, so that nothing of it outlives it.

Owns: the process, mount and network namespaces in which everything of a run lives, and their first
process.
Does not own: what runs in them.

Flow: `run` forks. The child is the first process of a new process namespace, in a new network and a
new mount namespace. It calls `body` there. When the child ends, however it ends, the kernel ends all
processes of its process namespace. The network namespaces, with bridge, veth pairs and address
translation, and the mounts then have no user, and the kernel removes them too. If the parent is
killed, the kernel kills the child.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable

CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_libc = ctypes.CDLL(None, use_errno=True)


class Forbidden(Exception):
    """The kernel does not permit namespaces. The message says what is missing."""


def _unshare(flags: int) -> None:
    if _libc.unshare(flags):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run(body: Callable[[int], int]) -> int:
    """Calls `body` in namespaces of its own, with the process id that the child has outside. Returns
    its exit code. Raises Forbidden."""
    if os.geteuid() != 0:
        raise Forbidden("network namespaces need root; run this as root with CAP_SYS_ADMIN and CAP_NET_ADMIN")
    try:
        _unshare(CLONE_NEWPID)
    except OSError as refused:
        why = f"the kernel refuses a process namespace ({refused.strerror}); it needs CAP_SYS_ADMIN"
        raise Forbidden(why) from refused
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        _first_process(body, reader)
    os.close(reader)
    _forward(child)
    os.write(writer, str(child).encode())
    os.close(writer)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _forward(child: int) -> None:
    """Passes requests to end on to the child."""

    def pass_on(number: int, _frame: object) -> None:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass

    for number in FORWARDED:
        # Under nohup, SIGHUP is ignored and stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)


def _first_process(body: Callable[[int], int], reader: int) -> None:
    """The child. Never returns."""
    code = 1
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        outside = os.read(reader, 32)
        if outside:  # otherwise the parent ended before the request above
            _unshare(CLONE_NEWNS | CLONE_NEWNET)
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
            code = body(int(outside))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing above would print it
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
