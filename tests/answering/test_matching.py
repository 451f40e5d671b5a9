"""Which record answers which question."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.answering.matching import DEFAULT, EXACT, NEAREST, RULE, TOOLCHAIN, Index
from autotune.answering.nearest_shape import safe_config
from autotune.domain.codec import from_data, to_data
from autotune.domain.key import Chip, KernelSpec
from autotune.domain.problem import ARBITRARY
from autotune.domain.record import Change
from autotune.wording.match import why
from tests.samples.matching import SPEC, older, question, record

SIZES = (64, 128, 256, 300, 512, 768, 1000, 1024, 1536, 2048, 4096)
KEYS = st.builds(
    question,
    st.sampled_from(SIZES),
    st.sampled_from((128, 256)),
    jax=st.sampled_from(("0.9.0", "0.10.2", "0.10.10")),
    causal=st.booleans(),
    chip=st.sampled_from((Chip.V5E, Chip.V6E)),
)
RECORDS = st.builds(
    record, KEYS, st.sampled_from((64, 128, 256, 512, 1024)), used=st.sampled_from((50, 100, 200))
)


def kind(key, *records):
    return Index(records, [SPEC]).match(key).kind


LIMIT = "xla_tpu_scoped_vmem_limit_kib"
OPTIONS = st.sampled_from(("", "xla_a=1", "xla_a=2", f"{LIMIT}=65536", f"{LIMIT}=8192 xla_a=1"))


def under(options, key=None):
    key = key or question()
    return replace(key, toolchain=replace(key.toolchain, options=options))


@given(st.lists(st.tuples(RECORDS, OPTIONS), max_size=12), KEYS, OPTIONS)
def test_nothing_is_exact_under_other_options(published, asked, options):
    records = one_of_each([replace(r, key=under(own, r.key)) for r, own in published])
    match = Index(records, [SPEC]).match(under(options, asked))
    assert (match.kind == EXACT) == (under(options, asked) in {r.key for r in records})
    if match.record is not None and match.kind != TOOLCHAIN:
        assert match.record.key.toolchain.options == under(options).toolchain.options


def test_other_options_are_another_toolchain_and_said():
    nearer, older_one = record(under("xla_a=1 xla_b=2")), older(record(under("xla_a=1")), "0.9.0")
    match = Index([nearer, older_one], [SPEC]).match(under("xla_a=1"))
    assert (match.kind, match.record) == (TOOLCHAIN, older_one)  # the same options go before
    match = Index([nearer], [SPEC]).match(under("xla_a=1"))
    assert match.record is nearer and "xla_b=2" in why(match, under("xla_a=1"))


@pytest.mark.parametrize(
    ("used", "options", "answer"),
    [
        (15, "", TOOLCHAIN),
        (17, "", DEFAULT),
        (17, f"{LIMIT}=32768", TOOLCHAIN),
        (33, f"{LIMIT}=32768", DEFAULT),
        (60, f"{LIMIT}=131072", TOOLCHAIN),
    ],
)
def test_what_needs_more_vmem_than_is_asked_for_is_not_handed_out(used, options, answer):
    tuned = record(under(f"{LIMIT}=65536"), used=used << 20)
    match = Index([tuned], [SPEC]).match(under(options))
    assert match.kind == answer
    assert ("MiB of VMEM" in why(match, under(options))) == (answer == DEFAULT)
    own = replace(tuned, config=tuned.config.replace(vmem_limit_bytes=64 << 20))
    assert kind(under(options), own) == TOOLCHAIN  # its limit is its config's


def one_of_each(records):
    return list({published.key: published for published in records}.values())


@given(st.lists(RECORDS, max_size=12), KEYS)
def test_the_best_word_that_fits_is_given(records, asked):
    records = one_of_each(records)
    match = Index(records, [SPEC]).match(asked)
    same = [r for r in records if replace(r.key, toolchain=asked.toolchain) == asked]
    near = [
        r
        for r in records
        if replace(r.key, problem=asked.problem) == asked
        and r.key.problem.options == asked.problem.options
        and safe_config(r, asked.problem, SPEC.cuts)
    ]
    expected = DEFAULT
    if any(r.key == asked for r in records):
        expected = EXACT
    elif same:
        expected = TOOLCHAIN
    elif near:
        unchanged = any(safe_config(r, asked.problem, SPEC.cuts) == r.config for r in near)
        expected = NEAREST if unchanged else RULE
    assert match.kind == expected
    assert (match.record is None) == (match.config is None) == (match.kind == DEFAULT)
    assert match.record is None or match.record in records


@given(st.lists(RECORDS, max_size=12), KEYS, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(records, asked, chance):
    records = one_of_each(records)
    shuffled = chance.sample(records, len(records))
    assert Index(records, [SPEC]).match(asked) == Index(shuffled, [SPEC]).match(asked)


@given(st.lists(RECORDS, max_size=12), st.lists(RECORDS, max_size=12), KEYS)
def test_an_index_grown_from_an_older_one_is_the_same(first, second, asked):
    old = Index(one_of_each(first), [SPEC])
    before = old.match(asked)
    grown = old.changed(Change(records=second), [])
    assert grown.match(asked) == Index(one_of_each(first + second), [SPEC]).match(asked)
    assert len(grown) == len(one_of_each(first + second))
    assert old.match(asked) == before


@given(st.lists(RECORDS, max_size=12), st.data(), KEYS)
def test_what_is_taken_out_is_gone(records, data, asked):
    records = one_of_each(records)
    gone = data.draw(st.lists(st.sampled_from(records), unique_by=id)) if records else []
    index = Index(records, [SPEC]).changed(
        Change(removed=[published.key for published in gone]), []
    )
    rest = [published for published in records if published not in gone]
    assert index.match(asked) == Index(rest, [SPEC]).match(asked)
    assert len(index) == len(rest)


@pytest.mark.parametrize(
    "m, block, asked, there",
    [
        (1024, 256, 2048, 256),
        (1024, 256, 512, 256),
        (1024, 256, 256, 256),
        (1024, 256, 128, None),  # the block is larger than the dimension
        (1024, 256, 640, None),  # no longer divides it
        (1000, 256, 640, 256),  # never did
        (1000, 256, 200, None),
        (1024, 256, 4096, None),  # four times what was used is not allowed
        (1024, True, 2048, None),
        (1024, 0, 2048, None),
        (256, 256, 512, 256),  # the whole, now in two blocks
        (256, 256, 640, None),  # it does not divide that
        (200, 200, 400, None),  # it may be misaligned there
        (256, 256, 72, 72),  # whole again
        (128, 128, 256, None),  # nobody has seen it cut: the default is as long
    ],
)
def test_safe(m, block, asked, there):
    of = record(question(m), block)
    config = safe_config(of, question(asked).problem, SPEC.cuts)
    assert (config and config["bm"]) == there
    if config and m == block < asked:
        assert set(config.dimension_semantics) == {ARBITRARY}
        unknown = replace(of, default=replace(of.default, time_us=None))
        assert safe_config(unknown, question(asked).problem, SPEC.cuts) is None
    elif config:
        assert config == replace(of.config, axes=config.axes)


def test_blocks_that_are_made_to_fit_are_a_rule_and_another_shape_as_it_is_goes_before():
    whole, cut = record(question(256), 256), record(question(2048), 256)
    assert kind(question(512), whole) == RULE
    assert kind(question(512), whole, cut) == NEAREST
    asked = Index([whole], [SPEC])
    assert asked.match(question(512), (NEAREST,)).kind == DEFAULT
    assert "whole dimension" in why(asked.match(question(512)), question(512))


def test_a_dimension_that_is_not_cut_must_be_the_same():
    assert kind(question(2048, 128), record(question(1024, 128))) == NEAREST
    assert kind(question(2048, 256), record(question(1024, 128))) == DEFAULT


@pytest.mark.parametrize(
    "asked",
    [
        question(2048, chip=Chip.V6E),
        question(2048, jax="0.9.0"),
        question(2048, causal=True),
        question(2048, dtype="float32"),
        question(2048, kernel="other"),
        question(2048, fingerprint="beef"),
    ],
    ids=str,
)
def test_nothing_else_may_differ(asked):
    assert kind(asked, record(question(1024))) == DEFAULT


def test_without_knowing_what_is_cut_nothing_is_near():
    data = to_data(SPEC)
    del data["cuts"]  # as an older version saved it
    for kernels in ([], [from_data(KernelSpec, data)]):
        assert Index([record()], kernels).match(question(2048)).kind == DEFAULT
    assert from_data(KernelSpec, to_data(SPEC)) == SPEC


def test_the_nearest_in_ratio_not_in_difference():
    index = Index([record(question(512), 128), record(question(2048), 128)], [SPEC])
    assert _problem(index, question(1024 - 128)) == question(512).problem
    assert _problem(index, question(1024 + 128)) == question(2048).problem
    assert _problem(index, question(1024)) == question(512).problem  # a tie


def _problem(index, asked):
    record = index.match(asked).record
    return record.key.problem


@pytest.mark.parametrize(
    "asked, there, expected",
    [
        ("0.10.2", ("0.9.0", "0.10.0"), "0.10.0"),
        ("0.10.2", ("0.10.10", "0.10.1"), "0.10.1"),  # as numbers, not as text
        ("0.10.2", ("0.10.1", "0.10.3"), "0.10.3"),  # a tie: the newer
        ("0.10.2", ("0.9.9", "0.12.0"), "0.9.9"),
        ("nightly", ("0.9.9", "0.12.0"), "0.9.9"),
    ],
)
def test_the_closest_toolchain(asked, there, expected):
    match = Index([older(record(), jax) for jax in there]).match(question(jax=asked))
    assert (match.kind, match.record.key.toolchain.jax) == (TOOLCHAIN, expected)
    assert match.check is None


def test_a_changed_source_is_said_with_what_the_earlier_one_had():
    match = Index([record()], [SPEC]).match(question(fingerprint="beef"))
    assert match.kind == DEFAULT
    assert match.earlier == record()
    assert "the source changed" in why(match, question(fingerprint="beef"))
    other = Index([record()], [SPEC]).match(question(2048, fingerprint="beef"))
    assert other.kind == DEFAULT and other.earlier is None
