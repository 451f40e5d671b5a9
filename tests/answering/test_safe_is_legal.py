"""What matching calls safe, by arithmetic alone, is legal when it is traced."""

import random
from dataclasses import replace
from math import prod

import pytest

from autotune.answering import rules
from autotune.answering.nearest_shape import safe_config
from autotune.answering.rule_answers import ruled_config
from autotune.declaring.discovery import find_kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.compilers import DescribeChip, DescribeKernel, ListChoices, TraceConfig, Traces
from autotune.domain.key import Chip
from autotune.domain.outcome import Estimated
from autotune.domain.record import Evidence
from autotune.estimating.legality import violation
from autotune.estimating.simulator import MODEL
from autotune.estimating.space import explore
from autotune.estimating.vmem import limit_bytes, vmem_use
from autotune.searching.one_config import evaluate
from autotune.searching.subject import describe_subject, explore_space
from autotune.tables.rule_fit import make_rule
from tests.samples.matching import record

MANY_BYTES = 1 << 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel, tuned, asked",
    [
        ("matmul", "512x256x512", ("1024x256x512", "256x256x256", "512x512x512", "768x384x640")),
        (
            "flash_attention",
            "1x2x2x512x512x128",
            ("1x2x2x1024x512x128", "1x2x2x512x1024x128", "1x2x2x256x256x128"),
        ),
        ("rmsnorm", "1024x512", ("2048x512", "512x512", "1000x512")),
        ("vector_add", "10000", ("20000", "5000", "8192")),
    ],
)
def test_safe_is_legal(pool, kernel, tuned, asked):
    ref, chip = find_kernel(kernel), Chip.V4  # a megacore: semantics matter
    spec, info = pool.ask(DescribeKernel(ref=ref)), pool.ask(DescribeChip(chip=chip))
    here = spec.problems.parse(tuned)
    space = explore(pool, ref, here, pool.ask(ListChoices(ref=ref, problem=here)), info)
    base = record()
    estimate = replace(base.estimate, vmem_used_bytes=1, vmem_allowed_bytes=MANY_BYTES)
    checked = 0
    for shape in asked:
        there = spec.problems.parse(shape)
        growth = prod(-(-size // here[name]) for name, size in there.dims)
        for candidate in space.candidates[::3]:
            config = candidate.config
            of = replace(
                base, key=replace(base.key, problem=here), config=config, estimate=estimate
            )
            of = replace(of, default=Evidence(config=space.default, time_us=1.0))
            fitted = safe_config(of, there, spec.cuts)
            if fitted is None:
                continue
            before = traced(pool, ref, here, config, chip)
            after = traced(pool, ref, there, fitted, chip)
            checked += 1
            assert violation(after, info) is None, (config, shape)
            needed = [vmem_use(trace, info).expected_bytes for trace in (before, after)]
            assert needed[1] <= needed[0] * growth
    assert checked > 2


def traced(pool, ref, problem, config, chip):
    answer = pool.ask(TraceConfig(ref=ref, problem=problem, config=config, chip=chip))
    assert isinstance(answer, Traces), answer
    return answer.traces[0]


DRAWN = {
    "matmul": lambda draw: "x".join(str(8 * draw.randint(16, 128)) for _ in range(3)),
    "flash_attention": lambda draw: f"1x2x2x{_long(draw)}x{_long(draw)}x128",
    "jax_splash_attention": lambda draw: (
        f"{draw.choice((2, 4))}x2x{128 * draw.randint(4, 40)}x128x128"
    ),
    "rmsnorm": lambda draw: f"{8 * draw.randint(16, 1024)}x{draw.choice((512, 2048))}",
}
TAUGHT, ASKED, COMPILED = 9, 40, 2


def _long(draw):
    return 64 * draw.randint(2, 32)


@pytest.fixture(scope="module", params=DRAWN)
def lessons(request, pool):
    """Random shapes to learn from, and others to ask about."""
    ref, draw = find_kernel(request.param), random.Random(0)

    def subject():
        return describe_subject(pool, ref, Chip.V5E, ProblemWords(shape=DRAWN[request.param](draw)))

    known = dict(_guessed(pool, subject()) for _ in range(TAUGHT))
    return known, [subject() for _ in range(ASKED)]


@pytest.mark.slow
def test_what_a_rule_answers_is_legal_and_needs_no_more_vmem(pool, lessons):
    """Of random shapes: all are traced, and the compiler has the last word on some."""
    known, asked = lessons
    best = [(k, min(pairs, key=lambda pair: pair[1].time_us)[0]) for k, pairs in known.items()]
    rule = make_rule(known, best, asked[0].spec.cuts)
    assert rule is not None
    compiled = answered = 0
    for one in asked:
        config = ruled_config(rule, one.problem)
        found = rules.Chooser(rule).choose(dict(one.problem.dims))
        if config is None or found is None:
            continue
        answered += 1
        trace = traced(pool, one.ref, one.problem, config, Chip.V5E)
        assert violation(trace, one.chip) is None, (config, one.problem)
        used = vmem_use(trace, one.chip).expected_bytes
        assert used <= found[1].vmem_used_bytes <= found[1].vmem_allowed_bytes
        if compiled < COMPILED:
            compiled += 1
            assert isinstance(evaluate(pool, one, config), Estimated)
    assert answered >= ASKED / 4


def _guessed(pool, one):
    """Some candidates with what arithmetic says of them, as if they had been compiled."""
    space = explore_space(pool, one, lambda _, __: None)
    return one.key, [
        (
            each.config,
            replace(
                record().estimate,
                model=MODEL,
                time_us=each.roofline.guess_us,
                vmem_used_bytes=vmem_use(each.trace, one.chip).expected_bytes,
                vmem_allowed_bytes=limit_bytes(each.trace.vmem_limit_bytes, one.chip),
            ),
        )
        for each in space.candidates
    ]
