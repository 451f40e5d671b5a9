"""What others wrote reaches the terminal as text: nothing of it moves the cursor, changes colours,
begins a line or turns the reading direction. Looked at on a terminal: into a pipe click prints no
escapes anyway."""

import os
import re
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain.outcome import CompileFailed
from autotune.domain.visible import visible
from autotune_db.store import open_store
from tests.samples import records as dbsamples
from tests.samples.database import new_store
from tests.samples.records import save_trial
from tests.servers.commands import autotune_here

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202egnihton\u2066\u2028[bold]\x7f\b\nfake line"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\x0d\u202egnihton\u2066\u2028[bold]\x7f\x08\x0afake line"
PUBLISHED = (
    "--shape=m=4096,k=128,a=1 --chip=v5e --option=transposed=true --option=activation=gelu "
    "--toolchain=jax=0.9.0,jaxlib=0.9.0,libtpu=0.0.30"
)
COMMANDS = (
    ("lookup", "matmul", *PUBLISHED.split()),
    ("show", "1"),
    ("explain", "1"),
    ("history", "--trials"),
    ("misses",),
    ("snapshots", "list"),
    ("snapshots", "records"),
    ("token", "list"),
)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A database in which every text is hostile."""
    file = tmp_path_factory.mktemp("hostile") / "test.db"
    key = dbsamples.key()
    key = replace(
        key, problem=replace(key.problem, options=(("activation", "gelu"), ("transposed", True)))
    )
    evil = replace(
        key, kernel=f"evil {HOSTILE}", problem=replace(key.problem, options=(("o", HOSTILE),))
    )
    config = replace(dbsamples.config(), axes=(("mode", HOSTILE),))
    with open_store(str(file), create=True) as store:
        store.save_kernel(dbsamples.spec())
        for searched in (key, evil):
            failed = CompileFailed(reason=HOSTILE, message=HOSTILE)
            save_trial(store, searched, replace(dbsamples.trial(0, failed), config=config))
        store.save_record(
            replace(
                dbsamples.record(key),
                config=config,
                reason=HOSTILE,
                verification=HOSTILE,
                baseline=replace(dbsamples.record().baseline, note=HOSTILE),
                pushed_by=HOSTILE,
                checked_by=HOSTILE,
            )
        )
        store.save_misses({(evil, HOSTILE): 3})
    return file


def on_a_terminal(file, *args):
    ours, theirs = os.openpty()
    env = {**os.environ, "AUTOTUNE_DATABASE_URL": str(file), "TERM": "dumb"}
    command = [str(Path(sys.executable).with_name("autotune")), *args]
    process = subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux: nobody has the other end
            break
        output += piece
    os.close(ours)
    process.wait(300)
    return output


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_no_text_of_others_acts_on_the_terminal(database, command):
    text = on_a_terminal(database, *command).decode().replace("\r\n", "\n")
    assert "Traceback" not in text and not re.search(r"\d us\b", text)
    acting = {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Cs")}
    assert not acting, text
    assert not any(line.startswith("fake line") for line in text.splitlines()), text
    if command[0] not in ("token", "snapshots") or command[1] == "records":
        assert r"\x1b]0;" in text, text
    if command[0] in ("lookup", "show", "snapshots"):  # no tables: no text is cut
        assert r"\x0a" not in text.replace(r"\x0afake line", ""), "our own lines are lines"


@pytest.mark.parametrize(
    "command",
    [
        "history",
        "misses",
        "log",
        "snapshots list",
        "snapshots records",
        "token list",
        "db check",
        "push --url http://127.0.0.1:9",
    ],
)
def test_that_there_is_nothing_is_a_line_too(command, tmp_path):
    new_store(tmp_path / "test.db").close()
    (line,) = autotune_here(*command.split(), cwd=tmp_path).stdout.splitlines()
    assert re.match("no|there is none|every row", line)


def test_every_character_that_acts_is_spelt_out():
    assert visible(HOSTILE) == SHOWN
    assert visible("≥ 16.5 µs\tfirst ± 7 %") == "≥ 16.5 µs\tfirst ± 7 %"
    assert visible("\ud800") == r"\ud800"
