"""What is pushed to a service with --recheck, checked by its worker with the real compiler."""

import json
from dataclasses import replace

import pytest

from autotune.answering.http import Remote
from autotune.answering.push import send
from autotune.domain.store import KeyResult
from autotune.domain.token import WRITER
from autotune_db import open_store
from tests.servers.commands import autotune
from tests.servers.service import running


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A machine that nobody knows, with one honest record."""
    place = tmp_path_factory.mktemp("tuned")
    limits = ["--trials", "4", "--db", "own.db"]
    done = autotune("search", "vector_add", "--shape", "65536", "--chip", "v5e", *limits, cwd=place)
    assert done.returncode == 0, done.stderr
    return place / "own.db"


def the_record(store):
    (found,) = store.records()
    return found


def misaligned(record):
    """Blocks that the description allows and the compiler does not."""
    (name, _), *others = record.config.axes
    config = replace(record.config, axes=((name, 100), *others))
    return replace(record, config=config, is_default=False)


@pytest.mark.parametrize("honest", [True, False])
def test_a_claim_is_compiled_before_it_is_believed(tuned, tmp_path, honest):
    with open_store(str(tuned), create=False) as own:
        record, kernels = the_record(own), own.kernels()
    claim = replace(record, estimate=replace(record.estimate, time_us=0.5))
    claim = claim if honest else misaligned(claim)
    database = str(tmp_path / "fleet.db")
    with open_store(database, create=True) as store:
        _, token = store.tokens.create("ci", WRITER, None)
        with running(database, recheck=True) as service:
            for _ in send(Remote(service.url, 60.0, token), kernels, [KeyResult(record=claim)]):
                pass
            assert store.records() == []
            command = ("worker", "--drain", "--json", "--name", "own")
            done = autotune(*command, "--db", database, cwd=tmp_path)
            assert json.loads(done.stdout)["jobs"] == 1, done.stderr
        candidate = store.candidate(1)
        assert store.candidate(2) is None
        assert candidate.decision.state == ("accepted" if honest else "refused"), candidate
        if not honest:
            assert store.records() == []
            return
        found = the_record(store)
        assert found.config == record.config
        assert found.estimate.time_us == record.estimate.time_us  # not what was claimed
        assert (found.pushed_by, found.checked_by.startswith("own-")) == ("ci", True)
        assert [one.pushed_by for one in store.trials(found.key, pushed=True)]
