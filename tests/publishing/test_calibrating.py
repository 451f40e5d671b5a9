"""Programs that are timed beside their estimates: by the real session and race, on a device that is
not there; and what a file of somebody else may do to a database."""

import json
import random
import re
from dataclasses import replace
from unittest import mock

import pytest

from autotune.compiling.protocol import Loaded, Sample, Samples
from autotune.domain.arguments import ProblemWords
from autotune.domain.calibration import MeasuredProgram, calibration_data, calibration_rows
from autotune.domain.codec import to_data
from autotune.domain.compilers import DescribeToolchain
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Chip
from autotune.domain.problem import make_config
from autotune.publishing import calibrating
from autotune.publishing.calibrating import CalibrationProblem, calibrate, problems_of, times_of
from autotune_db import open_store
from tests.samples import records
from tests.servers.commands import assert_one_sentence, autotune_here

ROW = MeasuredProgram(
    key=records.key("vector_add"),
    config=make_config({"block_n": 8}),
    program="p",
    measured_us=2.0,
    samples=9,
    estimate_us=1.0,
    relayout_us=0.0,
    limited_by="HBM",
    model="m",
)


def read(rows, **changes):
    text = json.dumps({"schema": 1, "rows": rows, **changes})
    return calibration_rows(json.loads(text), "f.json")


def test_a_file_names_each_program_once_and_nothing_of_the_machine():
    data = calibration_data([ROW])
    assert read(data["rows"] * 1000) == [ROW]
    assert calibration_data([ROW, replace(ROW, program="sent", from_file=True)]) == data
    assert set(data["rows"][0]) == {
        *("key", "config", "program", "measured_us", "samples", "estimate_us", "relayout_us"),
        *("limited_by", "model"),
    }


@pytest.mark.parametrize("time", [0, -1, float("nan"), float("inf"), 1e300, 10**400])
def test_what_is_no_time_is_refused(time):
    with pytest.raises(InvalidInputError, match=r"row 1: .{1,20} µs is no time"):
        read([{**to_data(ROW), "measured_us": time}])


@pytest.mark.parametrize("rows", [[], [{}], 5, None, {"a": 1}, [to_data(ROW)] * 10_001])
def test_a_file_without_rows_that_can_be_read_is_refused(rows):
    with pytest.raises(InvalidInputError, match=r"^f\.json h"):
        read(rows)
    with pytest.raises(InvalidInputError, match="no calibration of schema 1"):
        read([to_data(ROW)], schema=2)


def test_a_file_starts_no_code_of_its_own():
    assert problems_of([replace(ROW, key=replace(ROW.key, kernel="evil.py:KERNEL"))]) == []


class Device:
    """The measuring process of a v5e that takes 50 µs for everything, about."""

    running = True

    def ask(self, request, limit_s):
        if request["kind"] == "open":
            opened = {"platform": "tpu", "kind": "TPU v5 lite", "id": 0, "cores": 1, "count": 1}
            return {"ok": {**opened, "method": "device time"}}
        if request["kind"] == "sample":
            noise = random.Random(0)
            samples = [Sample(round(5e7 * noise.gauss(1, 0.003))) for _ in request["order"]]
            return {"ok": to_data(Samples(samples))}
        return {"ok": to_data(Loaded()) if request["kind"] == "load" else None}

    def stop(self):
        self.running = False

    close = stop


@pytest.mark.slow
def test_what_a_device_measures_is_kept_and_taken_by_another_database(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(calibrating, "measuring_process", lambda *_: Device())
    problems = [CalibrationProblem("vector_add", ProblemWords(shape="65536"))]
    device, heard = calibrating.attached(pool, "python", 0), list[str]()
    toolchain = pool.ask(DescribeToolchain())
    with open_store(str(tmp_path / "a.db"), create=True) as store:
        calibrate(pool, store, Chip.V5E, problems, device, heard.append)
        calibrate(pool, store, Chip.V5E, problems, device, heard.append)
        rows = store.calibration(Chip.V5E, toolchain)
    assert heard[1:] == ["1 of 1, vector_add: it is in the database"]
    assert [row.config is None for row in rows] == [False, False, True]
    assert all(row.measured_us == pytest.approx(50, rel=0.02) for row in rows)
    lies = [replace(row, estimate_us=row.measured_us, program="x") for row in rows]
    with open_store(str(tmp_path / "b.db"), create=True) as store:
        for given in (
            lies,
            [replace(row, measured_us=0.01) for row in rows],
            [replace(row, key=replace(row.key, fingerprint="another")) for row in rows],
        ):
            sent = problems_of(given), times_of(given)
            calibrate(pool, store, Chip.V5E, *sent, heard.append)
        taken = store.calibration(Chip.V5E, toolchain)
        calibrate(pool, store, Chip.V5E, problems, device, heard.append)
        assert store.calibration(Chip.V5E, toolchain) == rows, "a device's own times replace them"
    assert "left out, 0.01 µs is less than" in heard[3]
    assert "left out, its times are of another chip or source of the kernel" in heard[4]
    assert [replace(row, samples=0) for row in taken] == [
        replace(row, samples=0, from_file=True) for row in rows
    ], "what a file says of estimates counts for nothing, and what has no times takes none away"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("toolchain", "kernel", "says"),
    [("0.0.1", "vector_add", "libtpu 0.0.1, here is jax"), ("", "mine", "has times of no kernel")],
)
def test_a_file_of_others_is_refused_whole(toolchain, kernel, says, tmp_path):
    tools = replace(ROW.key.toolchain, libtpu=toolchain or ROW.key.toolchain.libtpu)
    data = calibration_data([replace(ROW, key=replace(ROW.key, kernel=kernel, toolchain=tools))])
    (tmp_path / "f.json").write_text(json.dumps(data))
    assert_one_sentence(autotune_here("calibrate", "--from", "f.json", cwd=tmp_path), says)


@pytest.mark.slow
def test_a_device_that_opens_for_nothing_ends_it_and_an_interrupted_run_goes_on(
    tmp_path, monkeypatch
):
    problems = [CalibrationProblem("vector_add", ProblemWords(shape=n)) for n in ("4096", "8192")]
    monkeypatch.setattr(calibrating, "catalogue", lambda: problems)
    monkeypatch.setattr("autotune.measuring.attached.attached_chips", lambda: [Chip.V5E])

    def run(ask=Device.ask):
        device = type("Device", (Device,), {"ask": ask})
        monkeypatch.setattr(calibrating, "measuring_process", lambda *_: device())
        return autotune_here("calibrate", "--here", "--write", "t.json", cwd=tmp_path)

    def busy(self, request, limit_s):
        raised = {"stage": "open", "type": "E", "message": "the accelerator is busy"}
        return {"error": raised}

    def interrupted(self, request, limit_s):
        if request.get("problem", {}).get("dims", {}).get("n") == 8192:
            raise KeyboardInterrupt
        return Device.ask(self, request, limit_s)

    assert_one_sentence(run(busy), "the accelerator is busy: give another --device, or wait for")
    stopped = run(interrupted)
    assert (stopped.returncode, (tmp_path / "t.json").exists()) == (130, False)
    assert re.search(
        r"interrupted: [23] times kept in .*, the same command resumes", stopped.stderr
    )
    done = run()
    assert done.returncode == 0
    assert "1 of 2, vector_add: it is in the database\n2 of 2, vector_add, est" in done.stderr
    assert json.loads((tmp_path / "t.json").read_text())["schema"] == 1
    monkeypatch.setattr(calibrating, "calibrate", mock.Mock(side_effect=KeyboardInterrupt))
    stopped = autotune_here("calibrate", "--from", "t.json", cwd=tmp_path)
    assert stopped.returncode == 130 and "nothing of t.json is kept" in stopped.stderr
