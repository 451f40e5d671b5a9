"""For all tests: no deadlines, machines are noisy; one real compiler and one PostgreSQL for the
session, which each worker of pytest-xdist has of its own."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Some tests ask libtpu for a chip in their own process, and so may two workers at once.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
# Each takes two seconds to start. A test of two says so.
os.environ.setdefault("AUTOTUNE_COMPILERS", "1")

import gc
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from autotune.compiling.pool import CompilerPool
from autotune_db import SqlStore, open_store
from tests.samples.database import new_store
from tests.servers.postgres import Postgres, postgres_server

# Both would judge how busy the machine is. ``make test-nightly`` tries ten times as many examples.
settings.register_profile(
    "any machine", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", settings.get_profile("any machine"), max_examples=400)
settings.load_profile("any machine")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every child.
signal.signal(signal.SIGINT, signal.default_int_handler)


# The last snapshot of a service that is configured by its URL is kept there.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="autotune-cache-")

ROOT = Path(__file__).parent

# Files with slow tests that rarely break and take long: ``make test-nightly`` has them. Those that
# begin with one of the names beside a file are in every run.
_NIGHTLY: dict[str, tuple[str, ...]] = {
    "answering/test_safe_is_legal.py": ("test_safe_is_legal[rmsnorm",),
    "attacks/test_restored_databases.py": (),
    "compiling/child/verify/test_broken_kernels.py": (
        "test_a_broken_config_is_refused_with_its_reason[parallel_reduction",
        "test_a_broken_config_is_refused_with_its_reason[rounded_total",
        "test_a_broken_config_is_refused_with_its_reason[floor_grid",
        "test_a_broken_config_is_refused_with_its_reason[stale_alias",
        "test_a_broken_config_is_refused_with_its_reason[late_wait",
        "test_a_broken_config_is_refused_with_its_reason[same_rows",
        "test_its_twin_passes[parallel_reduction",
        "test_its_twin_passes[late_wait",
    ),
    "compiling/child/verify/test_package_twins.py": ("test_the_corpus",),
    "compiling/child/verify/test_twins.py": (
        "test_a_kernel_that_is_right_passes[blur",
        "test_a_copy_with_a_fault_does_not[row_maximum",
        "test_the_corpus",
    ),
    "compiling/farm/test_cluster.py": ("test_what_dies_costs_nothing",),
    "docker/test_built_images.py": (),
    "docker/test_compose_runs.py": (),
    "docker/test_database_roles.py": ("test_a_service_can_do", "test_a_worker_can_do"),
    "docker/test_proxy.py": ("test_it_answers_over_tls",),
    "docker/test_service_image.py": (),
    "docs/test_blocks.py": ("test_a_page_is_run[start",),
    "e2e/test_assembly.py": (
        "test_a_candidate_is_simulated_as_from_the_printed_listing[matmul-512",
    ),
    "e2e/test_check_against.py": ("test_what_slows", "test_what_breaks"),
    "e2e/test_from_jax.py": ("test_the_default_compiles_is_estimated_and_is_right[jax_gmm",),
    "e2e/test_killed.py": ("test_kill_9", "test_ctrl_c_ends_with_130_and_a_sentence[once"),
    "e2e/test_loops_of_data.py": (
        "test_a_loop_runs_as_often_wherever_its_length_comes_from[v5e",
        "test_operations",
        "test_without_its_length_there_is_no_time[prefetch",
    ),
    "e2e/test_mesh.py": (
        "test_the_time_is_that_of_the_rows_of_one_device[v6e",
        "test_it_is_verified_on_as_many_devices[KERNEL-true",
        "test_what_sends",
        "test_without",
    ),
    "e2e/test_one_config_command.py": ("test_configs", "test_a_search"),
    "e2e/test_physical_bound.py": ("test_the_catalogue_is_never_below_it[matmul",),
    "e2e/test_real_space.py": (
        "test_no_two_candidates_compile_to_the_same_program[vector_add",
        "test_semantics",
        "test_the_rows",
        "test_a_candidate",
    ),
    "e2e/test_recheck.py": ("test_a_claim_is_compiled_before_it_is_believed[True",),
    "e2e/test_search_command.py": (
        "test_a_search",
        "test_lookup",
        "test_show",
        "test_the_same",
        "test_the_table",
        "test_a_timeout",
    ),
    "e2e/test_tune_command.py": (
        "test_all",
        "test_the_model",
        "test_it_is_kept",
        "test_what_is_finished",
    ),
    "e2e/test_worker_command.py": ("test_from_a_miss_to_a_config_with_one_call[the database",),
    "kernels/test_from_jax_attention.py": (),
    "kernels/test_from_jax_grouped.py": (),
    "kernels/test_from_jax_paged.py": (),
    "kernels/test_ours.py": (
        "test_a_config_is_right[matmul-16x300x130-bfloat16",
        "test_a_config_is_right[gathered_matmul-129x8x8x9",
        "test_a_config_is_right[flash_attention-1x2x1x129x257x64",
        "test_a_config_is_right[rmsnorm-block_rows=8-block_features=256",
        "test_a_config_is_right[tiled_dot-3000",
    ),
    "measuring/test_measured_search.py": ("test_the_finalists_of_a_search",),
    "measuring/test_session.py": (
        "test_the_faster",
        "test_a_candidate_that_misbehaves_costs_only_itself[dies",
        "test_without",
        "test_after",
    ),
    "python/test_install_others.py": (),
    "service/pages/test_chromium.py": ("test_filters_and_links", "test_a_miss_is_requested"),
    "service/pages/test_tasks.py": ("test_what_is_missing",),
    "service/test_damaged_rows.py": (),
    "service/test_openapi.py": (),
    "service/test_schemathesis.py": ("test_without_a_token_nothing_is_written",),
    "service/test_service_faults.py": ("test_a_fault_under_load_loses_nothing[a process",),
}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Millions of objects, all of which stay: nobody looks again and again for what is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is nightly, after folders have marked what is slow. Files with nightly tests come
    first: begun last, one of them would be all that is left to do."""
    files = {ROOT / name: names for name, names in _NIGHTLY.items()}
    for item in items:
        is_slow = item.path in files and item.get_closest_marker("slow") is not None
        if is_slow and not item.name.startswith(files[item.path]):
            item.add_marker(pytest.mark.nightly)
    items.sort(key=lambda item: item.path not in files)


@pytest.fixture(scope="session")
def pool() -> Iterator[CompilerPool]:
    with CompilerPool(1) as compilers:
        yield compilers


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process and its children keep temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'autotune.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that is empty (PostgreSQL) or does not exist yet (SQLite)."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    postgres = request.getfixturevalue("postgres")
    database = postgres.new_database()
    yield database
    postgres.drop(database)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """Empty."""
    if request.param == "sqlite":
        with new_store(tmp_path / "autotune.db") as opened:
            yield opened
        return
    postgres = request.getfixturevalue("postgres")
    database = postgres.with_tables()
    with open_store(database, create=False) as opened:
        yield opened
    postgres.drop(database)
