"""What the light commands import, and that nothing in the current folder gets in the way."""

import subprocess
import sys

import pytest

from autotune.cli.main import _new_interrupt
from tests.samples.database import new_store, two_records
from tests.servers.commands import assert_one_sentence, autotune

HEAVY = ("jax", "jaxlib", "optuna", "fastapi", "numpy", "libtpu")

VERSIONS = "jax=0.10.2,jaxlib=0.10.2,libtpu=0.0.42"
LOOKUP = ["lookup", "mm", "--shape", "1024x128", "--chip", "v5e", "--toolchain", VERSIONS]

PROBE = """
import sys
from autotune.cli.main import main
try:
    main({args!r})
except SystemExit:
    pass
found = sorted(name for name in {heavy!r} if name in sys.modules)
print("FOUND", found)
"""


def run(code, folder):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"AUTOTUNE_DATABASE_URL": str(folder / "x.db"), "PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["lookup", "matmul", "--shape", "1x1x1", "--chip", "v5e"],
        ["history"],
        ["chips"],
        ["db", "upgrade"],
        ["export", "x.bundle"],
        ["serve", "--help"],
        ["lookup", "matmul", "--shape", "1x1x1", "--chip", "v5e", "--url", "http://127.0.0.1:9"],
    ],
)
def test_light_commands_import_no_jax_optuna_or_fastapi(args, tmp_path):
    done = run(PROBE.format(args=args, heavy=HEAVY), tmp_path)
    assert done.stdout.strip().splitlines()[-1] == "FOUND []"


@pytest.mark.parametrize("args", [LOOKUP, ["history"], ["misses"], ["snapshots", "list"]])
def test_a_command_that_reads_the_database_imports_no_mapper(args, tmp_path):
    """A third of its time, with what else only other commands need."""
    new_store(tmp_path / "x.db", two_records).close()
    heavy = ("sqlalchemy.orm", "alembic", "autotune.answering.client", "http.client", *HEAVY)
    done = run(PROBE.format(args=args, heavy=heavy), tmp_path)
    assert done.stderr == ""
    assert done.stdout.strip().splitlines()[-1] == "FOUND []"


def _decoys(folder):
    for name in ("kernels", "service", "db", "jax", "autotune"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('decoy imported')\n")


def test_a_folder_with_our_names_does_not_get_in_the_way(tmp_path):
    _decoys(tmp_path)
    done = autotune("history", cwd=tmp_path)
    assert_one_sentence(done, "there is no database at")
    done = autotune("db", "upgrade", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command, hidden, extra",
    [
        ("history", "sqlalchemy", "store"),
        ("explain 1", "rich", "search"),
        ("estimate matmul --shape 8,8,8 --chip v5e", "rich", "search"),
        ("search vector_add --shape 8 --chip v5e", "rich", "search"),
        ("worker", "numpy", "search"),
        ("serve", "fastapi", "serve"),
    ],
)
def test_what_is_not_installed_is_named(command, hidden, extra, tmp_path):
    """As the base install has it."""
    code = f"import sys; sys.modules[{hidden!r}] = None; sys.argv[0] = 'autotune'; " + (
        "import importlib.util as u; real = u.find_spec; "
        f"u.find_spec = lambda name, *r: None if name == {hidden!r} else real(name, *r); "
        f"from autotune.cli.main import main; main({command.split()!r})"
    )
    assert_one_sentence(run(code, tmp_path), f"pallas-autotune[{extra}]")


def test_two_interrupts_at_once_are_one_and_who_goes_on_is_heard(monkeypatch):
    interrupt, raised = _new_interrupt(), []
    for now in (10.0, 10.1, 11.5, 12.5, 13.0):
        monkeypatch.setattr("autotune.cli.main.time.monotonic", lambda now=now: now)
        try:
            interrupt()
        except KeyboardInterrupt:
            raised.append(now)
    assert raised == [10.0, 12.5]


def test_a_command_ends_at_once_after_its_exit_handlers(tmp_path):
    """No module is taken apart: nothing that it holds is deleted. All is written, and the status
    is the command's."""
    script = (
        "import atexit, sys; from autotune.cli import main\n"
        "class Late:\n    def __del__(self):\n        print('taken apart')\n"
        "main.late = Late(); sys.argv = ['autotune', {command!r}]\n"
        "run = main._run\n"
        "main._run = lambda given: (atexit.register(print, 'handler'), run(given))\n"
        "main.main()"
    )
    for command, status in {"chips": 0, "history": 2}.items():
        done = subprocess.run(
            [sys.executable, "-c", script.format(command=command)],
            capture_output=True,
            text=True,
            env={"AUTOTUNE_DATABASE_URL": str(tmp_path / "none.db"), "PATH": "/usr/bin:/bin"},
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (status, "handler"), done
