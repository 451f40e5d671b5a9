"""Settings: from flags and environment, and the same in the documentation."""

import os
import re
from dataclasses import asdict
from unittest import mock

import pytest
from click.testing import CliRunner

from autotune.cli import serve
from autotune.domain.errors import InvalidInputError
from autotune_service.settings import Settings, from_environment, to_environment
from tests.servers.commands import autotune_here


def test_flags_win_over_the_environment_and_that_over_defaults():
    environment = {"AUTOTUNE_SERVICE_PORT": "1", "AUTOTUNE_SERVICE_WORKERS": "2"}
    settings = from_environment(environment, port=3)
    assert (settings.port, settings.workers, settings.host) == (3, 2, Settings().host)


def test_there_and_back():
    chosen = Settings(port=1, refresh_s=0.5, closed=True, writes_per_second=0)
    assert from_environment(to_environment(chosen)) == chosen
    assert from_environment({}) == Settings()


def _served(database, variables, *flags):
    """The settings that the command hands to the server."""
    with (
        mock.patch.dict(os.environ, {f"AUTOTUNE_SERVICE_{n.upper()}": v for n, v in variables}),
        mock.patch("uvicorn.run"),
        mock.patch.object(serve, "options", return_value={}) as options,
    ):
        done = CliRunner().invoke(serve.serve, [*flags, "--port", "0", "--db", str(database)])
    assert done.exit_code == 0, done.output
    return options.call_args.args[0]


def test_the_command_leaves_what_no_flag_says_to_the_environment_and_the_defaults(tmp_path):
    defaults = {n: v for n, v in asdict(Settings()).items() if isinstance(v, bool)}
    contrary = {n: not v for n, v in defaults.items()}
    variables = [(n, str(v)) for n, v in contrary.items()]
    assert _served(tmp_path / "a.db", variables) == Settings(port=0, **contrary)  # migrates
    flags = ["--" + ("" if v else "no-") + n.replace("_", "-") for n, v in defaults.items()]
    assert _served(tmp_path / "a.db", variables, *flags) == Settings(port=0)
    assert _served(tmp_path / "a.db", []) == Settings(port=0)


def test_a_server_that_is_interrupted_keeps_nothing(tmp_path):
    with mock.patch("uvicorn.run", side_effect=KeyboardInterrupt):
        done = autotune_here("serve", "--migrate", "--port", "0", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")


@pytest.mark.parametrize(
    "variable, text, says",
    [
        ("PORT", "http", "is not a whole number"),
        ("PORT", "70000", "from 0 to 65535"),
        ("WORKERS", "0", "from 1 to 64"),
        ("REFRESH_S", "soon", "is not a number"),
        ("REFRESH_S", "0", "from 0.01"),
        ("REFRESH_S", "nan", "from 0.01"),
        ("CLOSED", "perhaps", "is not true or false"),
    ],
)
def test_bad_ones_are_a_sentence(variable, text, says):
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        from_environment({f"AUTOTUNE_SERVICE_{variable}": text})
