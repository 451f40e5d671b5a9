"""``autotune rule`` on trials stored by hand, with a fake of the compiler."""

import json
from dataclasses import replace

import pytest

from autotune.answering.matching import RULE, Index
from autotune.domain.codec import to_data
from autotune.domain.evidence import Verdict
from autotune.domain.key import Choices
from autotune.domain.outcome import CompileFailed, Estimated
from autotune.domain.record import Evidence, Trial
from autotune_db import open_store
from tests.answering.test_rules import BLOCKS, LENGTHS, config, estimated
from tests.fakes.compiler import TOOLCHAIN, FakeCompilers
from tests.samples.matching import NOON, SPEC, question, record
from tests.samples.records import save_trial
from tests.samples.traces import V5E
from tests.servers.commands import autotune_here

CALL = ("rule", "matmul", "--chip", "v5e")
MANY = (*LENGTHS, 1280, 2560, 3500, 4500)


class Pool(FakeCompilers):
    """Nothing can be traced or compiled: what is known are the stored trials."""

    most = BLOCKS[0]

    def __init__(self, **_):
        axes = {"bm": BLOCKS[0], "unroll": True}
        choices = Choices(
            axes={"bm": [BLOCKS[0], self.most], "unroll": [True]}, default=axes, grid=SPEC.grid
        )
        super().__init__(
            spec=SPEC, chip=V5E, choices=choices, traced=self.refused, verified=self.says
        )

    def says(self, config):
        return Verdict(ok=False, reason="not what the reference gives")

    def refused(self, config):
        return CompileFailed(reason="not here")

    def __enter__(self):
        return self

    def __exit__(self, *_): ...


@pytest.fixture(autouse=True)
def _pool(monkeypatch):
    monkeypatch.setattr("autotune.cli.shared.new_pool", Pool)


def asked(m):
    return replace(question(m), toolchain=TOOLCHAIN)


def fill(folder, lengths, slow=()):
    """Each problem with all its blocks, the fastest published. Of ``slow`` ones the large blocks
    take fifty times as long as elsewhere, which no other problem shows."""
    with open_store(str(folder / "test.db"), create=True) as store:
        store.save_kernel(SPEC)
        for m in lengths:
            tried = [
                (save(store, m, number, block, 50.0 if m in slow and number else 1.0), block)
                for number, block in enumerate(one for one in BLOCKS if one < m)
            ]
            estimate, best = min(tried, key=lambda one: one[0].time_us)
            default = Evidence(config=config(BLOCKS[0]), time_us=estimated(m, BLOCKS[0]).time_us)
            tuned = replace(record(asked(m)), config=config(best), estimate=estimate)
            store.save_record(replace(tuned, default=default))


def save(store, m, number, block, times):
    estimate = estimated(m, block)
    slower = replace(estimate, time_us=times * estimate.time_us)
    outcome = Estimated(estimate=slower, program="p")
    trial = Trial(
        number=number, config=config(block), outcome=outcome, seconds=1.0, created_at=NOON
    )
    assert save_trial(store, asked(m), trial)
    return slower


def ruled(folder):
    with open_store(str(folder / "test.db"), create=False) as store:
        return [one for one in store.records() if one.rule is not None]


def test_it_is_published_with_what_it_is_worth(tmp_path):
    fill(tmp_path, MANY)
    done = autotune_here(*CALL, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)
    assert (told["left_out"], told["problems"]) == (13, 11)  # the shortest, longest: out of range
    assert told["worst_regret"] <= 0.1 < told["default_regret"]
    (carrier,) = ruled(tmp_path)
    assert carrier.key == asked(5000) and carrier.rule.problems == 11
    found = Index([carrier], [SPEC]).match(asked(2000))
    assert found.kind == RULE and found.config is not None and found.config["bm"] == 512


def test_lookup_in_a_database_answers_as_the_service_does(tmp_path):
    fill(tmp_path, MANY)
    assert autotune_here(*CALL, cwd=tmp_path).returncode == 0
    versions = ",".join(f"{name}={value}" for name, value in to_data(TOOLCHAIN).items())
    for m, kind, block in ((2048, "exact", 512), (2000, "rule", 512), (299, "nearest", 128)):
        call = ("lookup", "mm", "--shape", f"{m}x128", "--chip", "v5e", "--toolchain", versions)
        done = autotune_here(*call, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["match"], dict(found["config"]["axes"])["bm"]) == (kind, block)
        assert f"{kind}: " in autotune_here(*call, cwd=tmp_path).stdout


def test_an_earlier_rule_that_is_found_to_be_far_off_is_withdrawn(tmp_path):
    fill(tmp_path, MANY)
    assert autotune_here(*CALL, cwd=tmp_path).returncode == 0
    with open_store(str(tmp_path / "test.db"), create=False) as store:
        shown = asked(1800)
        save(store, 1800, 0, BLOCKS[0], 1.0)
        save(store, 1800, 1, BLOCKS[1], 50.0)
        save(store, 1800, 2, BLOCKS[2], 50.0)
        store.save_record(replace(record(shown), config=config(BLOCKS[0])))
    done = autotune_here(*CALL, cwd=tmp_path)
    assert done.returncode == 1 and "m=1800" in done.stderr
    assert not ruled(tmp_path)


def test_an_answer_that_the_gate_refuses_ends_it_for_good(tmp_path):
    fill(tmp_path, MANY)
    with open_store(str(tmp_path / "test.db"), create=False) as store:  # here another one won
        own = store.record(asked(2048))
        assert own is not None and own.config == config(BLOCKS[2])
        store.save_record(replace(own, config=config(BLOCKS[1])))
    done = autotune_here(*CALL, cwd=tmp_path)
    assert done.returncode == 1 and "not what the reference gives" in done.stderr
    assert "m=2048" in done.stderr and not ruled(tmp_path)
    done = autotune_here(*CALL, cwd=tmp_path)
    assert done.returncode == 1 and "called 1 configs" in done.stderr
    assert not ruled(tmp_path)


def test_what_seems_to_be_better_is_tried(tmp_path, monkeypatch):
    """One whole block, which nobody compiled, fits."""
    monkeypatch.setattr(Pool, "most", 2048)
    lengths = (520, 528, 544, 560, 576, 592)
    fill(tmp_path, (*LENGTHS, *lengths))
    autotune_here(*CALL, cwd=tmp_path)
    with open_store(str(tmp_path / "test.db"), create=False) as store:
        tried = {m: {one.config["bm"] for one in store.trials(asked(m))} for m in lengths}
    assert all(m in sizes for m, sizes in tried.items())
