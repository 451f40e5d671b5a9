"""Running the installed command as a user does: a process of its own, any current folder. Where
nothing depends on the process, in this one, which takes a tenth of the time."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from unittest import mock

from autotune.cli.main import main
from tests.servers.printed_json import strays

_OURS = ("PYTHONPATH", "COLUMNS")
"""Variables of who runs the tests: commands of users have none of them."""

COMMAND = Path(sys.executable).with_name("autotune")


def autotune(*args, cwd, env=None, timeout=1200, stdout=subprocess.PIPE):
    """Run ``autotune`` with a database in ``cwd``, unless ``env`` says another."""
    surroundings = {
        **{k: v for k, v in os.environ.items() if k not in _OURS},
        "AUTOTUNE_DATABASE_URL": str(cwd / "test.db"),
        **(env or {}),
    }
    done = subprocess.run(
        [str(COMMAND), *args],
        cwd=cwd,
        env=surroundings,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout,
        check=False,
    )
    return _as_promised(done, args)


def autotune_here(*args, cwd, env=None):
    """As ``autotune``, in this process: for commands that start no other one."""
    surroundings = {"AUTOTUNE_DATABASE_URL": str(cwd / "test.db"), **(env or {})}
    printed, errors, code = io.StringIO(), io.StringIO(), 0
    before = signal.getsignal(signal.SIGTERM)
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, surroundings),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        if "COLUMNS" not in surroundings:
            os.environ.pop("COLUMNS", None)
        try:
            main(list(args))
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception:
            traceback.print_exc()
            code = 1
        finally:
            signal.signal(signal.SIGTERM, before)
    done = subprocess.CompletedProcess(args, code, printed.getvalue(), errors.getvalue())
    return _as_promised(done, args)


def _as_promised(done, args):
    """Whatever a test runs with ``--json`` prints what the docs promise."""
    if "--json" in args and "--version" not in args and done.returncode in (0, 1, 3):
        found = strays(args, done.stdout)
        assert not found, found
    return done


def assert_one_sentence(done, says):
    """Exit code 2, one line on stderr beside what says what is being done, no traceback."""
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr + (done.stdout or "")
    lines = [
        line for line in done.stderr.splitlines() if not line.startswith(("tracing ", "starting "))
    ]
    assert len(lines) == 1, done.stderr
