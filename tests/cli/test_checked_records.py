"""Commands that print a record say what is known of it under other toolchains."""

from dataclasses import replace

import pytest

from autotune.domain.key import Toolchain
from autotune.domain.record import CheckVerdict, Evidence, RecordCheck
from autotune_db import open_store
from tests.samples.dashboard import estimated, trial
from tests.samples.matching import NOON, SPEC, question, record
from tests.samples.records import save_trial
from tests.servers.commands import autotune_here

LOOKUP = ("lookup", "mm", "--shape", "m=1024,k=128", "--chip", "v5e", "--toolchain")
OWN = question().toolchain


@pytest.mark.parametrize(
    "command",
    [(*LOOKUP, f"jax={OWN.jax},jaxlib={OWN.jaxlib},libtpu={OWN.libtpu}"), ("show", "1")],
    ids=["lookup", "show"],
)
def test_each_toolchain_is_a_line(tmp_path, command):
    newer, newest = (Toolchain(jax=jax, jaxlib=jax, libtpu="9") for jax in ("9.0", "9.1"))
    same = RecordCheck(
        toolchain=newer, verdict=CheckVerdict.SAME, checked_at=NOON, time_us=27.2, finding="same"
    )
    broken = replace(same, toolchain=newest, verdict=CheckVerdict.BROKEN, finding="no room")
    with open_store(str(tmp_path / "here.db"), create=True) as store:
        store.save_kernel(SPEC)
        save_trial(store, question(1024), trial(0, estimated(9.5)))
        store.save_record(replace(record(question(1024)), checks=(same, broken)))
    done = autotune_here(*command, "--db", "here.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"checked on 2026-01-02 with {newer}: compiles, 27.2 µs, same" in done.stdout
    assert f"checked on 2026-01-02 with {newest}: broken, no room" in done.stdout


@pytest.mark.parametrize(
    ("known", "printed"),
    [
        (
            {"expected_us": 11.0, "expected_error": 0.25},
            "2.00 times as fast as the default is predicted",
        ),
        ({}, "estimated 5.5 µs ± unknown; "),
        ({"expected_us": 11.0, "expected_error": 56.4}, "(± over 100%; it was not"),
    ],
)
def test_a_default_is_printed_as_what_is_known_of_it(tmp_path, known, printed):
    default = Evidence(config=None, time_us=None, **known)
    with open_store(str(tmp_path / "here.db"), create=True) as store:
        store.save_kernel(SPEC)
        store.save_record(replace(record(question(1024)), default=default, reason=""))
    versions = f"jax={OWN.jax},jaxlib={OWN.jaxlib},libtpu={OWN.libtpu}"
    done = autotune_here(*LOOKUP, versions, "--db", "here.db", cwd=tmp_path)
    assert printed in done.stdout
