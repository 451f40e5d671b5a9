"""The worker's image: its JAX, and a search with the real TPU compiler as its container runs it."""

import json
import re

import pytest

from tests.samples.dockerfiles import FOLDER
from tests.servers.images import Image

pytestmark = pytest.mark.slow


def test_its_jax_is_the_pinned_one(worker_image: Image) -> None:
    lock = (FOLDER / "worker.lock").read_text()
    pinned = [re.findall(rf"^{name}==(\S+)", lock, re.M) for name in ("jax", "jaxlib", "libtpu")]
    code = "import jax, jaxlib; from importlib.metadata import version; \
        print(jax.__version__, jaxlib.__version__, version('libtpu'))"
    done = worker_image.execute(["python", "-c", code])
    assert [[one] for one in done.stdout.split()] == pinned, done.stderr


def test_it_knows_the_kernels(worker_image: Image) -> None:
    done = worker_image.execute(["autotune", "kernels", "--json"])
    assert done.returncode == 0, done.stderr
    assert "matmul" in json.loads(done.stdout)


def test_it_searches(worker_image: Image, walls: bool) -> None:
    search = (
        "autotune",
        "search",
        "vector_add",
        "--shape",
        "1048576",
        "--chip",
        "v5e",
        "--trials",
        "2",
        "--json",
    )
    worker_image.empty_data()
    done = worker_image.execute(list(search), walls=walls)
    assert done.returncode == 0, done.stderr
    assert (worker_image.data / "pallas-autotune" / "autotune.db").is_file()
