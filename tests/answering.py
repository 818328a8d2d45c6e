"""Servers of tests, and the ports of others."""

from __future__ import annotations

import contextlib
import random
import socket
import socketserver
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from tenancy.lab import ports
from tests.waiting import until


@contextmanager
def answering(server: socketserver.BaseServer) -> Iterator[None]:
    """Answer requests in a thread. It looks for its end often: at the default of half a second, ends take longer than
    most tests."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_ports(count: int) -> list[int]:
    """Ports that no process uses now, all different, and below those that the kernel gives outgoing connections: a
    program that is ended finds its port free when it is started again."""
    servers: list[socket.socket] = []
    while len(servers) < count:
        with contextlib.suppress(OSError):
            servers.append(socket.create_server(("127.0.0.1", random.randint(*ports.RANGE))))
    port_numbers = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return port_numbers


def wait_until_free(port_numbers: Iterable[int]) -> None:
    """Wait until a server can listen at each of the ports."""
    for port in port_numbers:
        until(partial(_is_free, port), f"port {port} is free")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def answers(port: int) -> bool:
    """Whether a process listens at the port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
