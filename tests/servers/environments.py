"""Another JAX beside ours, kept from run to run: it is half a gigabyte."""

import os
from pathlib import Path

import platformdirs
import pytest

from autotune.compiling.environments.create import create_environment
from autotune.compiling.environments.environment import FOLDER_VARIABLE
from autotune.domain.errors import AutotuneError


def folder_with(release):
    """The folder of environments, which has that one; else the test is skipped."""
    cache = Path(platformdirs.user_cache_dir("pallas-autotune-tests")) / "environments"
    folder = Path(os.environ.get(FOLDER_VARIABLE, cache))
    try:
        create_environment(folder, release)
    except AutotuneError as error:
        pytest.skip(f"jax {release} cannot be installed here: {error}")
    return folder
