"""What commands print with ``--json`` is what the schema beside the docs says, and no more."""

import json
from pathlib import Path

import click
import pytest

from autotune.cli.main import JSON_VERSION, cli
from autotune.domain.outcome import Estimated, OutOfVmem
from autotune_db import open_store
from benchmarks.pages.json_forms import FORMS
from benchmarks.pages.json_page import schema_text
from tests.samples import estimates, records
from tests.samples.database import by_hand
from tests.servers.commands import autotune_here
from tests.servers.printed_json import PROMISED, SCHEMA

LOOKUP = (
    "lookup matmul --chip=v5e --option=transposed=true --option=activation=gelu "
    "--toolchain=jax=0.9.0,jaxlib=0.9.0,libtpu=0.0.30"
)
COMMANDS = (
    "history",
    "history --trials",
    "show 1",
    "show 3",
    "explain 12 13",
    f"{LOOKUP} --shape=m=4096,k=128,a=1",
    f"{LOOKUP} --shape=m=4095,k=127,a=1 --dtype=float32",
    "kernels",
    "chips",
    "misses",
    "log",
    "snapshots list",
    "snapshots records",
    "snapshots pin 1",
    "snapshots unpin 1",
    "snapshots rollback 1",
    "snapshots prune --days 1",
    "token create --name ci --days 3",
    "token list",
    "token revoke 1",
    "collect --from-misses",
    "export --format json out.json",
    "doctor --quick",
    "db check",
    "db upgrade",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One in which a database has something of everything."""
    place = tmp_path_factory.mktemp("json")
    with open_store(str(place / "test.db"), create=True) as store:
        store.save_kernel(records.spec())
        for number, outcome in enumerate(records.OUTCOMES):
            records.save_trial(store, records.key(), records.trial(number, outcome))
        store.save_record(records.record())
        store.save_misses({(records.key(m=8), "default"): 3})
        store.tokens.create("reader", "reader", None)
        other = records.key(m=8)
        for number, us in enumerate((4.0, 6.0)):
            explained = estimates.estimate(estimates.parts(hbm=us))
            outcome = Estimated(estimate=explained, program="")
            records.save_trial(store, other, records.trial(number, outcome))
        records.save_trial(store, other, records.trial(2, OutOfVmem(used_bytes=2, allowed_bytes=1)))
    by_hand(place / "test.db", "UPDATE autotune_trials SET outcome = '{' WHERE id = 14")
    return place


@pytest.mark.parametrize("line", COMMANDS)
def test_what_a_command_prints_is_what_the_schema_says(folder, line):
    """Which is looked at wherever a test runs a command."""
    done = autotune_here(*line.split(), "--json", cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)


def test_each_command_has_a_form():
    assert set(with_json(cli, click.Context(cli))) == set(FORMS)


def test_the_schema_says_what_the_code_prints_and_its_version():
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), (
        "python -m benchmarks.pages.generated_pages"
    )
    told = autotune_here("--version", "--json", cwd=Path.cwd())
    assert json.loads(told.stdout)["json"] == PROMISED["version"] == JSON_VERSION


def with_json(group, context):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in with_json(command, click.Context(command)))
        elif command and any(param.name == "as_json" for param in command.params):
            yield name
