"""Ports of a lab: chosen once and remembered; a port that another process took is chosen again."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterable, Mapping

from tenancy.lab.layout import Lab, LabError

NAMES = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
# Only a lab with queues has them.
QUEUES = ("kueue", "kueue-webhook", "kueue-metrics")
# Only a lab with metrics has them.
METRICS = ("prometheus", "metrics-generator")
# Only the lab of an environment with a clock has it.
CLOCK = ("clock",)
# Below the kernel's range of ports for outgoing connections.
RANGE = (20000, 29989)


def remembered(lab: Lab) -> dict[str, int]:
    """The ports of this lab; empty if it has none yet."""
    ports = lab.recall().get("ports", {})
    return ports if set(NAMES) <= set(ports) <= {*NAMES, *QUEUES, *METRICS, *CLOCK} else {}


def component(name: str) -> str:
    """The component that listens on a port."""
    return "kueue" if name in QUEUES else name.removesuffix("-peer")


def choose(
    lab: Lab,
    keep: Iterable[str] = (),
    names: Iterable[str] = NAMES,
    first: Mapping[str, Iterable[int]] | None = None,
) -> dict[str, int]:
    """The lab's ports: those in `keep` unchanged, the others unchanged if they are free.

    `first` are ports outside of the range that are tried before others, by name.
    """
    ports = dict(remembered(lab))
    with contextlib.ExitStack() as claims:
        for name in names:
            if name in keep and name in ports:
                continue
            if name in ports and _hold_soon(claims, ports[name]):
                continue
            ports[name] = _free(claims, set(ports.values()), (first or {}).get(name, ()))
    lab.remember(ports=ports)
    return ports


def _free(claims: contextlib.ExitStack, used_ports: set[int], first: Iterable[int] = ()) -> int:
    for port in first:
        if port not in used_ports and _hold(claims, port):
            return port
    for _ in range(200):
        port = random.randint(*RANGE)
        if port not in used_ports and _hold(claims, port):
            return port
    raise LabError(f"no free port between {RANGE[0]} and {RANGE[1]} on the loopback address in 200 trials.")


def _hold_soon(claims: contextlib.ExitStack, port: int) -> bool:
    # A killed process leaves the process table a moment before its sockets close.
    deadline = time.monotonic() + 1
    while not (holds := _hold(claims, port)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds


def _hold(claims: contextlib.ExitStack, port: int) -> bool:
    listener = socket.socket()
    # As the components do: a connection of the last run in TIME_WAIT is no obstacle.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(1)
    except OSError:
        listener.close()
        return False
    claims.callback(listener.close)
    return True
