"""``autotune explain`` on trials stored by hand: no compiler is needed."""

import json
from dataclasses import replace
from unittest import mock

import pytest

from autotune.domain.evidence import Measurement, Timed
from autotune.domain.explanation import OperationTime
from autotune.domain.outcome import CallTime, Estimate, Estimated, NotEstimated, OutOfVmem
from autotune.domain.record import Evidence, Method
from autotune.estimating.simulator.drawing.picture import ConfigProfile, Picture
from autotune.wording.profile_page import with_xla
from autotune.wording.screen import LOG_WIDTH
from autotune_db.store import open_store
from tests.samples import records as dbsamples
from tests.samples.estimates import estimate, parts
from tests.samples.records import save_trial
from tests.servers.commands import assert_one_sentence, autotune, autotune_here

MATMUL = dbsamples.key("matmul", jax="0.0.1")
SLOW = estimate(parts(issue=20, latency=62, fill=1), steps=512)
FAST = estimate(parts(issue=18, latency=2, fill=9), steps=64)
OLD = replace(SLOW, explanation=None)


def stored(folder, *outcomes, key=MATMUL):
    """Trials 1, 2 … of a new database in the folder; more for another key."""
    with open_store(str(folder / "test.db"), create=True) as store:
        store.save_kernel(dbsamples.spec())
        for number, given in enumerate(outcomes):
            outcome = (
                Estimated(estimate=given, program="p") if isinstance(given, Estimate) else given
            )
            assert save_trial(store, key, dbsamples.trial(number, outcome))


def explained(folder, *args, code=0):
    done = autotune_here("explain", *args, cwd=folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = (done.stdout + done.stderr).splitlines()  # the samples' source is nobody's
    return "\n".join(line for line in lines if not line.startswith("the source changed"))


def data(folder, *args, code=0):
    done = autotune_here("explain", *args, "--json", cwd=folder)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_the_heading_stands_in_the_terminal_or_the_file_and_not_twice(tmp_path):
    stored(tmp_path, SLOW, FAST)
    named = [ConfigProfile(name=f"trial {n}", calls=()) for n in (1, 2)]
    with mock.patch.multiple("autotune.cli.explain", _profiles=lambda *_: named, _refs=mock.Mock()):
        text = explained(tmp_path, "1", "2", "--source")
        explained(tmp_path, "1", "2", "--source", "--output", "lines.txt")
    assert text.count("with jax 0.0.1") == 1
    assert (tmp_path / "lines.txt").read_text().count("with jax 0.0.1") == 1


def test_one_trial_shows_every_part_fact_and_call(tmp_path):
    calls = (
        CallTime(name="gate", runs=1, time_us=60, limited_by="HBM", vmem_used_bytes=2 << 20),
        CallTime(name="up", runs=3, time_us=23, limited_by="compute", vmem_used_bytes=1 << 20),
    )
    stored(tmp_path, replace(SLOW, calls=calls))
    text = explained(tmp_path, "1")
    cyrillic = autotune("explain", "1", cwd=tmp_path, env={"PYTHONIOENCODING": "iso8859-5"})
    assert (cyrillic.returncode, "?????" in cyrillic.stdout) == (0, True), cyrillic.stderr
    rows = {line.split("  ")[0].strip(): " ".join(line.split()) for line in text.splitlines()}
    assert rows["DMA latency waits"] == "DMA latency waits 62.0 µs 74.7% ██████████████████"
    assert rows["total"] == "total 83.0 µs 100.0%"
    assert "cross-lane stalls" not in rows  # parts of no time take no row
    assert rows["time"].endswith("83.0 µs ± 5%, schedule simulation")
    assert rows["roofline"].endswith("1.0 µs, the time is 83.00× that")
    assert rows["HBM traffic"].endswith("4.00 MiB, 4.00× the least possible 1.00 MiB")
    assert rows["VMEM by operand"].endswith("args[0] 64 KiB, outputs 2.00 MiB")
    assert rows["spills"].endswith("none")
    assert "60.0 µs, limited by HBM, 2.00 MiB of VMEM; 3 times up" in " ".join(text.split())
    assert max(map(len, text.splitlines()[4:])) <= LOG_WIDTH


def test_two_trials_are_compared_and_the_difference_is_explained(tmp_path):
    stored(tmp_path, SLOW, FAST)
    text = explained(tmp_path, "1", "2")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "DMA latency waits 62.0 µs 74.7% 2.0 µs 6.9% −60.0 µs" in rows
    assert "pipeline fill 1.0 µs 1.2% 9.0 µs 31.0% +8.0 µs" in rows
    assert "bm 8 16" in rows
    assert not any(row.startswith("bk ") for row in rows)  # the same in both
    said = "Trial 2 is 2.86 times as fast as trial 1, by estimate. It waits 60.0 µs less for DMA"
    assert said in rows[-1]
    assert max(map(len, text.splitlines()[4:-1])) <= LOG_WIDTH
    comparison = data(tmp_path, "1", "2")["comparison"]
    assert (comparison["faster"], comparison["tie"]) == (2, False)
    assert comparison["gained_us"]["DMA latency waits"] == 60
    assert comparison["why"] == text.splitlines()[-1]


def test_other_chips_and_versions_are_compared_with_a_warning(tmp_path):
    stored(tmp_path, SLOW)
    stored(tmp_path, FAST, key=dbsamples.key("matmul", jax="0.0.2"))
    text = explained(tmp_path, "1", "2")
    assert "NOT the same toolchain: jax 0.0.1, jaxlib 0.0.1, libtpu 0.0.30 and jax 0.0.2" in text


def test_other_problems_are_not_compared(tmp_path):
    stored(tmp_path, SLOW)
    stored(tmp_path, FAST, key=dbsamples.key("matmul", m=8))
    assert_one_sentence(
        autotune_here("explain", "1", "2", cwd=tmp_path), "trials 1 and 2 solve different problems"
    )


def test_a_trial_without_an_estimate_says_why(tmp_path):
    lost = OutOfVmem(reason="20 MiB of 16 MiB", used_bytes=20 << 20, allowed_bytes=16 << 20)
    stored(tmp_path, SLOW, lost)
    sentence = "trial 2 has no estimate: out of VMEM, 20 MiB of 16 MiB"
    assert sentence in explained(tmp_path, "2", code=1)
    assert sentence in explained(tmp_path, "1", "2", code=1)
    found = data(tmp_path, "2", code=1)
    assert found["missing"] == [sentence]
    assert found["trials"][0]["explanation"] is None


def test_a_trial_of_an_older_version_says_what_to_do(tmp_path):
    stored(tmp_path, OLD, FAST)
    text = explained(tmp_path, "1", code=1)
    assert "estimated by an older version, which kept no parts: search again" in text
    assert "Trial 2 is 2.86 times as fast" in explained(tmp_path, "1", "2", code=1)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("7",), "there is no trial 7"),
        (("1", "7"), "there is no trial 7"),
        (("1", "--trace", "absent/trace.json"), "there is no folder"),
        (("1", "--kernel", "absent.py:K"), "add --source, --around or --trace FILE"),
        (("1", "--trace", "."), "is not a file that could be written to"),
        (
            ("1", "--trace", "t.json", "--kernel", "absent.py:K"),
            "there is no kernel file absent.py",
        ),
        (
            ("1", "--trace", "t.json"),
            "autotune_kernels.matmul:KERNEL has changed since, or is another kernel",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(args, says, tmp_path):
    stored(tmp_path, SLOW)
    done = autotune_here("explain", *args, cwd=tmp_path)
    assert_one_sentence(done, says)
    assert not (tmp_path / "t.json").exists()


def test_what_is_published_is_explained_and_not_what_was_tried_last(tmp_path):
    problem = dbsamples.spec().problems.parse("m=4096,k=128,a=1", "bfloat16")
    first, last = (
        replace(dbsamples.key("matmul", jax=jax), problem=problem) for jax in ("0.0.1", "0.0.2")
    )
    stored(tmp_path, SLOW, key=first)
    with open_store(str(tmp_path / "test.db")) as store:
        store.save_record(dbsamples.record(first))
    stored(tmp_path, FAST, key=last)
    assert "with jax 0.0.1" in explained(tmp_path, "matmul", "--shape", "m=4096,k=128,a=1")


def test_show_says_the_vmem_of_what_is_not_timed(tmp_path):
    refused = NotEstimated(reason="no model", vmem_used_bytes=3 << 20, program="p")
    stored(tmp_path, refused)
    text = autotune_here("show", "1", cwd=tmp_path).stdout
    assert "compiled, not estimated, no model" in text and "VMEM 3.00 MiB" in text


def measured(folder, run):
    with open_store(str(folder / "test.db"), create=False) as store:
        default, winner = (trial.config for trial in store.trials(MATMUL))
        store.save_record(
            replace(
                dbsamples.record(MATMUL),
                config=winner,
                method=Method.MEASURED,
                measurement=run,
                default=Evidence(config=default, time_us=83.0),
            )
        )


def test_a_measurement_stands_beside_the_estimate(tmp_path):
    stored(tmp_path, SLOW, FAST)
    default, winner = dbsamples.trial(0).config, dbsamples.trial(1).config
    timed = (
        Timed(config=winner, samples_us=(20.0, 25.0), ratio=1.0, low=1.0, high=1.0),
        Timed(config=default, samples_us=(90.0,), ratio=4.0, low=3.8, high=4.2, slower=True),
    )
    run = Measurement(method="device time", device="v5e 0", timed=timed, stopped_by="settled")
    measured(tmp_path, run)
    text = " ".join(explained(tmp_path, "2").split())
    assert "measured 22.5 µs by device time on v5e 0, the estimate is +29%" in text
    shown = autotune_here("show", "2", cwd=tmp_path).stdout
    assert "estimated 29.0 µs" in shown
    assert "measured 22.5 µs by device time on v5e 0, the estimate is +29%, 2 samples" in shown
    assert "It was measured to be the fastest." in shown
    assert "Distinguishable from the runner-up, which takes 4.000 (3.800 to 4.200)" in shown
    assert "Distinguishable from the default" in shown
    found = json.loads(autotune_here("show", "1", "--json", cwd=tmp_path).stdout)["measurement"]
    assert (found["samples_us"], found["slower"], found["device"]) == ([90.0], True, "v5e 0")
    measured(tmp_path, replace(run, void="the device changed"))
    assert "Nothing is concluded from this run" in autotune_here("show", "2", cwd=tmp_path).stdout


def test_a_trace_has_what_xla_does_around_the_kernel():
    names = {"copy.1": 2.5, "fusion.3": 1.0}
    operations = tuple(
        (OperationTime(name=name, opcode="fusion", runs=1, time_us=took_us, hbm_bytes=1024), "")
        for name, took_us in names.items()
    )
    kernel = Picture(tracks=(), steps=1, total_us=10.0, notes=())
    found = with_xla(kernel, operations)
    (track,) = found.tracks
    assert [(one.name, one.begin_us, one.end_us) for one in track.slices] == [
        ("copy.1", 0.0, 2.5),
        ("fusion.3", 2.5, 3.5),
    ]
    assert found.notes == ("XLA adds 3.5 µs around the kernel: its track says how long, not when",)
    assert with_xla(kernel, ()) is kernel
