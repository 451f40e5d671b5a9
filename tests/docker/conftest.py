"""The service's image, built in a folder of this machine."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.servers.images import UNSHARE, Image, find_python, run, wanted_python
from tests.servers.service import free_port


@pytest.fixture(scope="session")
def image_python():
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
def service_image(image_python):
    """Not below /tmp, which the walls hide, and open to other users, which pytest's folders are
    not."""
    folder = Path(tempfile.mkdtemp(prefix="autotune-service-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        image = Image(folder, image_python, free_port())
        image.build()
        yield image
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def can_wall():
    """Whether a process may have a read-only root of its own here."""
    if os.geteuid() != 0 or UNSHARE is None:
        pytest.skip("only root may make a read-only root for a process, with unshare")
    if run([UNSHARE, "--mount", "true"]).returncode != 0:
        pytest.skip("this machine lets nobody make mounts of their own")


@pytest.fixture(params=[False, True], ids=["plain", "walls"])
def walls(request):
    """Whether the command meets a read-only root as another user, as in its container."""
    if request.param:
        request.getfixturevalue("can_wall")
    return bool(request.param)
