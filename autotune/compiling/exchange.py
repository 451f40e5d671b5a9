"""One request and its answer over a child's two pipes, none of which can block the parent."""

import os
import selectors
import subprocess
from collections.abc import Callable

_CHUNK_BYTES = 1 << 20


def exchange(
    child: subprocess.Popen[bytes], request: bytes, watch: Callable[[], float]
) -> bytes | None:
    """The line that answers ``request``; None when the child has ended without one.

    ``watch`` says after how many seconds it is called once more at the latest, and gives up by
    raising.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    os.set_blocking(child.stdin.fileno(), False)
    left, pieces = memoryview(request), [b""]
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stdin, selectors.EVENT_WRITE)
        while not pieces[-1].endswith(b"\n"):
            ready = {key.fileobj for key, _ in selector.select(watch())}
            if child.stdin in ready:
                left = left[_sent(child.stdin.fileno(), left) :]
                if not left:
                    selector.unregister(child.stdin)
            if child.stdout in ready:
                pieces.append(os.read(child.stdout.fileno(), _CHUNK_BYTES))
                if not pieces[-1]:
                    return None
            elif not ready and child.poll() is not None:
                return None  # what it started may hold its pipe open
    return b"".join(pieces)


def _sent(pipe: int, data: memoryview) -> int:
    """How many bytes went; a child that has closed its end takes all: its stdout tells the rest."""
    try:
        return os.write(pipe, data[:_CHUNK_BYTES])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)
