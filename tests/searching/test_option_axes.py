"""Compiler options as axes of a search: one study, and each trial under its own toolchain."""

import re
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from autotune.domain.compiler_options import VMEM_LIMIT
from autotune.domain.compilers import CompileConfig, CompileStep, DescribeChip
from autotune.domain.errors import InvalidInputError
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip, Choices
from autotune.estimating.space import PassedOn
from autotune.publishing.publish import publish
from autotune.publishing.task import TuningResult, TuningTask
from autotune.publishing.with_options import search_options, with_options
from autotune.searching import option_axes as axes
from autotune.searching.option_axes import LISTED, tuned_options
from autotune.searching.subject import SearchLimits
from autotune.wording.option_lines import function_lines
from tests.fakes.compiler import FakeCompilers, Quiet
from tests.samples.operations import compiled_step, operation
from tests.samples.searching import run_search
from tests.searching import test_transfer as steps
from tests.searching.test_transfer import store  # noqa: F401 (a fixture)

ROWS = 1 << 12
FAST = "xla_tpu_fast"
WANTED = {FAST: ("1", "2"), "xla_tpu_other": ("true",)}


class OptionCompilers(FakeCompilers):
    """A program is half as slow with ``FAST``=2, and no other option is known to it."""

    def answer(self, question):
        options = getattr(question, "options", None) or ""
        if isinstance(question, DescribeChip) and "unknown" in options:
            raise InvalidInputError("no such option")
        if isinstance(question, CompileConfig):
            assert all(name == "block" for name, _ in question.config.axes)
            factor = 0.5 if f"{FAST}=2" in options else 1.0
            return steps.compilers(ROWS, factor).answer(question)
        return super().answer(question)


def right(_):
    return Verdict(ok=True)


def searched(store, trials, space=None, **more):  # noqa: F811
    compilers, space = OptionCompilers(chip=steps.V5E), space or steps.space(ROWS)
    options = axes.option_axes(compilers, steps.subject(ROWS), space, WANTED, print)
    subject, limits = steps.subject(ROWS), SearchLimits(trials=trials, full=True)
    return options, run_search(
        compilers, store, subject, space, limits, Quiet(), options=options, **more
    )


@pytest.mark.parametrize("method", ["gp", "tpe", "random"])
def test_one_study_finds_the_option_and_each_trial_has_its_own_key(
    store,  # noqa: F811
    method,
):
    options, result = searched(store, 30, method=method)
    assert len(result.trials) == 30 == len({trial.number for trial in result.trials})
    best = min(result.trials, key=lambda t: t.estimate.time_us if t.estimate else 1e9)
    assert dict(best.config.axes)[FAST] == "2"
    asked = steps.subject(ROWS)
    for config_options, subject in options.subjects.items():
        kept = store.trials(subject.key)
        assert subject.toolchain.options == " ".join(f"{n}={v}" for n, v in config_options)
        own = options.part(result.trials, config_options)
        assert {(t.number, t.config) for t in kept} == {(t.number, t.config) for t in own}
        assert all(name == "block" for trial in kept for name, _ in trial.config.axes)
    _, again = searched(store, 30, method=method)
    assert again.reused == 30 and {t.config for t in again.trials} == {
        t.config for t in result.trials
    }
    assert run_search(
        OptionCompilers(), store, asked, steps.space(ROWS), SearchLimits(trials=1), Quiet()
    ).reused == len(store.trials(asked.key))


def test_what_is_traced_late_is_tried_under_each_set_as_well(store):  # noqa: F811
    """The fastest so far has an option, and what is beside it is looked for without."""
    space = steps.space(ROWS)
    choices = Choices(axes={"block": steps.BLOCKS}, default={"block": 64}, grid=())
    few = replace(
        space,
        candidates=space.candidates[2:4],
        passed_on=PassedOn(semantics=False, limit=False),
        untraced={c.config.axes: c.config for c in (*space.candidates[:2], *space.candidates[4:])},
        tracing=(lambda some: ([steps.traced(ROWS, c["block"])] for c in some), steps.V5E, choices),
    )
    options, result = searched(store, 100, few)
    sets = {options.set_by(trial.config) for trial in result.trials}
    assert result.stopped_by == "exhausted" and len(sets) == len(options.subjects) == 6
    assert len(result.trials) == len(sets) * len(steps.BLOCKS)


def test_the_winner_is_published_for_those_who_have_its_options_alone(store):  # noqa: F811
    options, result = searched(store, 30)
    compilers = OptionCompilers(chip=steps.V5E, verified=right)
    subject = steps.subject(ROWS)
    asked = publish(compilers, store, options.result(result, ()))
    tuned = TuningResult(
        task=TuningTask(ref=subject.ref, chip=subject.chip.chip, problem=subject.problem),
        spec=subject.spec,
        key=subject.key,
        trials=(),
        stopped_by="trials",
        publication=asked,
        ids={},
        place="",
    )
    whole = with_options(
        compilers, store, options, result, tuned, lambda part: publish(compilers, store, part)
    )
    (won,) = [of for of in whole.with_options if of.publication]
    record = store.record(won.key)
    assert record is not None and f"{FAST}=2" in record.key.toolchain.options
    assert [name for name, _ in record.config.axes] == ["block"]
    assert record.default.time_us and record.default.time_us > record.estimate.time_us
    plain = store.record(subject.key)
    assert plain is not None and plain.estimate.time_us > 1.5 * record.estimate.time_us
    assert len(store.records()) == 2


def test_what_the_compiler_does_not_take_and_what_a_parameter_does(capsys):
    space, subject, compilers = (
        steps.space(ROWS),
        steps.subject(ROWS),
        OptionCompilers(chip=steps.V5E),
    )
    with pytest.raises(InvalidInputError, match="no such option"):
        axes.option_axes(compilers, subject, space, {"xla_unknown": ("1",)}, print)
    limit = {VMEM_LIMIT: ("65536",)}
    assert not axes.option_axes(compilers, subject, space, limit, print).names
    assert "vmem_limit_bytes" in capsys.readouterr().out
    space = replace(space, passed_on=PassedOn(limit=False))
    assert axes.option_axes(compilers, subject, space, limit, print).names == {VMEM_LIMIT}
    many = {f"xla_{n}": ("1", "2", "3") for n in range(6)}
    made = axes.option_axes(compilers, subject, steps.space(ROWS), many, print)
    assert len(made.subjects) == axes.MOST_SETS and len(list(made.subjects)[18]) == 1


def test_options_alone_of_a_function_that_is_no_kernel():
    class Functions(OptionCompilers):
        def answer(self, question):
            if not isinstance(question, CompileStep):
                return super().answer(question)
            cycles = 500 if f"{FAST}=2" in (question.options or "") else 1000
            return compiled_step(operation("fusion", simulated_us=float(cycles)))

    ref, wanted = steps.subject(ROWS).ref, {**WANTED, VMEM_LIMIT: LISTED[VMEM_LIMIT]}
    compilers = Functions(chip=steps.V5E)
    tried = search_options(compilers, ref, Chip.V5E, "xla_x=1", wanted, print, 12, 0)
    assert tried[0].options == "xla_x=1" and (tried[0].time_us or 0) > 999
    assert len({trial.options for trial in tried}) == len(tried) >= 6
    best = min(tried, key=lambda trial: trial.time_us or inf)
    assert f"{FAST}=2" in best.options and "xla_x=1" in best.options and (best.time_us or inf) < 510
    lines = list(function_lines("f", Chip.V5E, tried))
    assert "2.00×" in lines[2] and f"--{FAST}=2" in lines[-2]
    alike = sum(trial.time_us == tried[0].time_us for trial in tried[1:])
    assert f"  {alike} of {len(tried) - 1} sets of options make no difference" in lines and alike
    with pytest.raises(InvalidInputError, match="no such option"):
        search_options(compilers, ref, Chip.V5E, "", {"xla_unknown": ("1",)}, print, 2, 0)


def test_options_in_words():
    assert tuned_options(["--xla_a=1,TRUE"], listed=False) == {"xla_a": ("1", "true")}
    assert tuned_options([], listed=True) == LISTED
    guide = Path(__file__).parents[2].joinpath("docs/guides/compiler-options.md").read_text()
    rows = re.findall(r"^\| `(xla_\w+)` \| (`[\w`, ]+) \|", guide, re.MULTILINE)
    assert {name: tuple(re.findall(r"\w+", values)) for name, values in rows} == LISTED
    for text in ("xla_a", "=1", "xla_a=1,"):
        with pytest.raises(InvalidInputError):
            tuned_options([text], listed=False)
