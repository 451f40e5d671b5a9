"""The table of a search on narrow terminals, what the gate refused, and a search that has ended."""

import subprocess
import sys
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from autotune.cli.misses import misses
from autotune.cli.reports import print_workload
from autotune.declaring.discovery import find_kernel
from autotune.declaring.fingerprint import ReadOnce, fingerprint, searched_source
from autotune.domain.arguments import ProblemWords
from autotune.domain.evidence import Verdict
from autotune.domain.job import Progress
from autotune.domain.key import Chip, KernelSpec
from autotune.domain.outcome import Estimated, OutOfVmem
from autotune.domain.problem import Config, ProblemSpec
from autotune.domain.record import Evidence, GateState
from autotune.estimating.simulator import MODEL
from autotune.publishing.progress import searched_before
from autotune.publishing.publish import Publication
from autotune.publishing.task import Plan, TuningResult, TuningTask
from autotune.searching.subject import SearchLimits
from autotune.wording.report import measured_table, print_report, report_html, report_text
from autotune_db import open_store
from tests.samples import estimates, records
from tests.samples.dashboard import RUN
from tests.samples.records import save_trial
from tests.servers.commands import autotune

TASK = TuningTask(
    ref=find_kernel("vector_add"), chip=Chip.V5E, problem=ProblemWords(shape="n=65536")
)
AXES = ("block_rows_of_the_queries", "block_columns_of_the_keys", "buffers_for_pages")


def tried(number, us, model=MODEL):
    estimate = estimates.estimate(estimates.parts(issue=us / 2, latency=us / 2), model=model)
    values = (8 * 2**number, 128, 2 + number)
    config = Config(axes=tuple(zip(AXES, values, strict=True)), grid_order=("m", "n"))
    outcome = Estimated(estimate=estimate, program=str(number))
    return replace(records.trial(number, outcome), config=config)


def reported(*wrong, unverified=(), trials=(), ties=()):
    trials = trials or [tried(number, 100.0 / (number + 1)) for number in range(4)]
    published = Publication(
        record=None,
        failure="a reason",
        winner=trials[-2],
        default=trials[0],
        baseline=Evidence(config=None, time_us=None, note="nothing is known"),
        wrong=tuple((trials[number], Verdict(ok=False, reason="off by 3")) for number in wrong),
        unverified=tuple(
            (trials[number], Verdict(ok=None, reason="timed out")) for number in unverified
        ),
        ties=tuple(trials[number] for number in ties),
        states=dict.fromkeys(wrong, GateState.REFUSED) | {1: GateState.VERIFIED},
    )
    spec = SimpleNamespace(axes=AXES)
    search = SimpleNamespace(
        reused=0,
        start_from=(),
        seconds=1.0,
        stopped_by="trials",
        space=SimpleNamespace(candidates=[], climbed=0, untraced={}),
        trials=trials,
    )
    return TuningResult(
        task=TASK,
        spec=spec,
        key=records.key(),
        trials=trials,
        stopped_by="trials",
        publication=published,
        ids={number: number + 1 for number in range(4)},
        place="here",
        search=search,
    )


def shown(width, *wrong, **what):
    console = Console(width=width, file=StringIO(), record=True)
    print_report(reported(*wrong, **what), console)
    return console.export_text()


def test_a_notebook_displays_nothing_beside_what_is_returned(monkeypatch):
    shown_beside = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: shown_beside.append(1))
    assert "winner" in report_text(reported()) and "winner" in report_html(reported())
    assert not shown_beside


@pytest.mark.parametrize("width", [80, 120, 130])
def test_tables_of_problems_break_no_word(width, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    key = replace(records.key(), kernel="vllm_ragged_paged_attention")
    default = Evidence(config=None, time_us=None, expected_us=1234.5, expected_error=0.12)
    record = replace(records.record(), default=default, is_default=True)
    published = replace(reported().publication, record=record)
    tuned = replace(reported(), key=key, trials=(), search=None, publication=published)
    print_workload([tuned], [], [], "here", [], as_json=False)
    with open_store(str(tmp_path / "asked.db"), create=True) as store:
        store.save_misses({(key, "another toolchain"): 1234})
    misses.main(["--db", str(tmp_path / "asked.db")], standalone_mode=False)
    parts = capsys.readouterr().out.replace(",", " ").split()
    for word in (key.kernel, *str(key.problem).split(",")):
        assert parts.count(word) == 2


@pytest.mark.parametrize("width", [80, 120, 200])
def test_headers_are_whole_and_everything_is_there(width):
    lines = shown(width).splitlines()
    (header,) = [line for line in lines if "× default" in line]
    assert max(map(len, lines)) <= width
    for name in ("trial", "estimated", "VMEM used"):
        assert name in header
    for name in AXES if width == 200 else ["config"]:
        assert name in header
    assert ("limited by" in header) == (width == 200)
    for value in ("16", "128", "winner", "default", "plain XLA", "m>n"):
        assert any(value in line for line in lines)


def test_a_part_that_no_config_says_has_no_column():
    assert "sem." not in shown(200)
    assert "order" in shown(200)


@pytest.mark.parametrize(
    ("wrong", "unverified", "mark", "ended"),
    [
        ((3,), (), "WRONG", "3 estimated, 1 wrong result."),
        ((), (3,), "NOT VERIFIED", "4 estimated."),
    ],
)
def test_what_the_gate_refused_or_could_not_verify_is_marked(wrong, unverified, mark, ended):
    """It may be the fastest: that something slower is published is not said in a footnote only.
    What is wrong is not counted as estimated.
    """
    text = shown(120, *wrong, unverified=unverified)
    (row,) = [line for line in text.splitlines() if line.lstrip().startswith(mark)]
    assert row.split(mark)[1].split()[0] == "4"
    assert f"stopped at its number of trials: {ended}" in text


def test_the_limit_that_the_default_wants_is_said():
    fits = tried(1, 50.0)
    config = fits.config.replace(vmem_limit_bytes=32 << 20)
    refused = OutOfVmem(reason="too big", used_bytes=2, allowed_bytes=1)
    default = replace(fits, number=0, outcome=refused)
    text = shown(200, trials=[default, replace(fits, config=config)])
    assert "The default's blocks fit with vmem_limit_bytes = 33_554_432 (trial 2, 50.0 µs)" in text
    assert "they use" not in shown(200)


@pytest.fixture
def ended(tmp_path):
    """The key of a search of four trials, in ``test.db``."""
    spec = KernelSpec(
        name="vector_add",
        fingerprint=fingerprint(find_kernel("vector_add")),
        problems=ProblemSpec(dims=("n",), dtypes=("float32",)),
        axes=AXES,
        grid=("n",),
        doc="",
    )
    key = records.key_here(spec, "n=65536", Chip.V5E)
    with open_store(str(tmp_path / "test.db"), create=True) as store:
        store.save_kernel(spec)
        trials = [tried(number, 100.0 / (number + 1)) for number in range(4)]
        for one in trials:
            save_trial(store, key, one)
        won = trials[3]
        assert won.estimate is not None
        found = replace(records.record(key), config=won.config, estimate=won.estimate, trials=4)
        store.save_record(found)
        store.searches.report(key, "", ENDED, over=True)
    return key


ENDED = Progress(done=4, goal=4, source=searched_source(find_kernel("vector_add")))
ASKED = ("search", "vector_add", "--shape", "n=65536", "--chip", "v5e")
PROBE = """
import sys
from autotune.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print("STARTED", {"optuna", "autotune.compiling.process"} & set(sys.modules))
"""


@pytest.mark.usefixtures("ended")
def test_a_search_that_has_ended_prints_its_result_without_a_compiler(tmp_path):
    asked = (*ASKED, "--trials", "4", "--db", str(tmp_path / "test.db"))
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "STARTED set()"
    assert "Searched before" in done.stdout and "4 trials: 4 estimated" in done.stdout


@pytest.mark.parametrize("source", ["", "of other choices"])
def test_an_end_says_nothing_of_another_default_or_other_choices(ended, tmp_path, source):
    """They are no part of the key. Older versions did not keep the source."""
    with open_store(str(tmp_path / "test.db"), create=False) as store:
        for end in ({"exhausted": True}, {"predicted": True}, {}):
            progress = replace(ENDED, source=source, **end)
            store.searches.report(ended, "", progress, over=True)
            plan = Plan() if end else Plan(limits=SearchLimits(trials=4))
            assert not searched_before(store, TASK, plan, ReadOnce())
            store.searches.report(ended, "", replace(ENDED, **end), over=True)
            assert searched_before(store, TASK, plan, ReadOnce())


@pytest.mark.usefixtures("ended")
@pytest.mark.slow
@pytest.mark.parametrize("more", [("--trials", "5"), ("--trials", "4", "--seed", "1", "--json")])
def test_what_is_not_done_is_searched(more, tmp_path):
    done = autotune(*ASKED, *more, cwd=tmp_path)
    assert "Searched before" not in done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("verified", "asked", "answered"), [(False, False, False), (True, True, True)]
)
def test_what_may_be_unverified_is_part_of_the_question(ended, tmp_path, verified, asked, answered):
    place = str(tmp_path / "test.db")
    with open_store(place, create=False) as store:
        record = store.record(ended)
        assert record is not None
        store.save_record(replace(record, verified=verified))
        plan = Plan(limits=SearchLimits(trials=4), allow_unverified=asked)
        assert (searched_before(store, TASK, plan, ReadOnce()) is not None) is answered


@pytest.mark.parametrize(
    ("changed_task", "changed_plan"),
    [
        ({"start_from": ("default",)}, {}),
        ({"only": {"block_n": ["1024"]}}, {}),
        ({}, {"anew": True}),
        ({}, {"limits": SearchLimits(trials=4, full=True)}),
        ({}, {"limits": SearchLimits(trials=5)}),
        ({}, {"python": None}),
    ],
)
def test_what_is_another_question_has_no_answer(ended, tmp_path, changed_task, changed_plan):
    plan = Plan(limits=SearchLimits(trials=4), allow_unverified=True)
    with open_store(str(tmp_path / "test.db"), create=False) as store:
        assert searched_before(store, TASK, plan, ReadOnce())
        assert not searched_before(
            store, replace(TASK, **changed_task), replace(plan, **changed_plan), ReadOnce()
        )


def test_a_winner_over_a_predicted_default_is_still_the_answer(ended, tmp_path):
    """The second is no worse by the rule of ties, but is not surely faster than the default."""
    place = str(tmp_path / "other.db")
    told = Evidence(config=None, time_us=None, expected_us=25.0, expected_error=0.0)
    with (
        open_store(str(tmp_path / "test.db"), create=False) as before,
        open_store(place, create=True) as store,
    ):
        record = before.record(ended)
        assert record is not None
        store.save_kernel(before.kernels()[0])
        won, tied = tried(1, 24.0), tried(2, 24.5)
        for one in (won, tied):
            save_trial(store, ended, one)
        assert won.estimate is not None
        own = replace(record, config=won.config, estimate=won.estimate, default=told, trials=2)
        store.save_record(own)
        store.searches.report(ended, "", ENDED, over=True)
        plan = Plan(limits=SearchLimits(trials=2), allow_unverified=True)
        tuned = searched_before(store, TASK, plan, ReadOnce())
        assert tuned is not None and tuned.publication is not None
        assert tuned.publication.winner == won


def test_the_table_shows_measurement_and_estimate_apart():
    trial = SimpleNamespace(config=RUN.timed[0].config, time_us=5.5)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(measured_table(RUN, [trial]))
    said = "device time", "8.2 µs", "5.5 µs", "plain XLA", "11.000", "10.500 to 11.500", "it aborts"
    assert [words for words in said if words not in capture.get()] == []
