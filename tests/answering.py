"""HTTP servers of tests."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
