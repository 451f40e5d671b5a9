"""Images built in a folder of this machine, once for each file of tests."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.images import UNSHARE, Image, find_python, run, wanted_python


@pytest.fixture(scope="session")
def image_python() -> Path:
    """The Python of the base image, with a package index that it reaches."""
    python = find_python(wanted_python())
    if python is None:
        pytest.skip(f"Python {wanted_python()}, which the images have, is not on this machine")
    with tempfile.TemporaryDirectory() as folder:
        ask = ["-m", "pip", "--retries", "0", "--timeout", "15", "download", "--no-deps", "h11"]
        if run([str(python), *ask, "--dest", folder]).returncode != 0:
            pytest.skip("no package index can be reached")
    return python


@pytest.fixture(scope="module")
def service_image(image_python: Path) -> Iterator[Image]:
    with _built("service", image_python) as image:
        yield image


@pytest.fixture(scope="module")
def worker_image(image_python: Path) -> Iterator[Image]:
    with _built("worker", image_python) as image:
        yield image


@contextmanager
def _built(name: str, python: Path) -> Iterator[Image]:
    """Not below /tmp, which the walls hide, and open to other users, which pytest's folders are
    not."""
    folder = Path(tempfile.mkdtemp(prefix=f"autotune-{name}-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        image = Image(name, folder, python, _free_port())
        image.build()
        yield image
    finally:
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def can_wall() -> None:
    """Whether a process may have a read-only root of its own here."""
    if os.geteuid() != 0 or UNSHARE is None:
        pytest.skip("only root may make a read-only root for a process, with unshare")
    if run([UNSHARE, "--mount", "true"]).returncode != 0:
        pytest.skip("this machine lets nobody make mounts of their own")


@pytest.fixture(params=[False, True], ids=["plain", "walls"])
def walls(request: pytest.FixtureRequest) -> bool:
    """Whether the command meets a read-only root as another user, as in its container."""
    if request.param:
        request.getfixturevalue("can_wall")
    return bool(request.param)
