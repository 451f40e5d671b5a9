"""A config as a person gives it: read, made complete, judged, and nothing kept."""

import pytest

from autotune.domain.arguments import config_text
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Choices
from autotune.domain.outcome import Estimated, Illegal
from autotune.domain.problem import Config, make_config
from autotune.estimating.space import PassedOn, default_config
from autotune.searching.one_config import ConfigJudge
from autotune.searching.subject import narrowed, wanted_values
from tests.fakes.compiler import FakeCompilers
from tests.publishing.test_publish import SUBJECT
from tests.samples.simulations import compiled, simulation
from tests.samples.traces import trace

CHOICES = Choices(
    axes={"block_m": [128, 256], "block_n": [128, 512], "fuse": [False, True], "mode": ["a", "b"]},
    default={"block_m": 128, "block_n": 512, "fuse": False, "mode": "a"},
    grid=("m", "n"),
)


def traced(config):
    if config["block_m"] == 7:
        return Illegal(reason="seven")
    return [trace(grid=(2, 2))]


def judge(*, semantics=False):
    compilers = FakeCompilers(
        choices=CHOICES,
        traced=traced,
        compiled=lambda config: (traced(config)[0], compiled(simulation(config["block_m"]))),
    )
    return ConfigJudge(
        compilers=compilers,
        subject=SUBJECT,
        choices=CHOICES,
        default=default_config(CHOICES),
        passed_on=PassedOn(semantics=semantics),
    )


def test_what_is_left_out_is_as_in_the_default():
    found = judge().read("block_m=256,fuse=TRUE")
    axes = {"block_m": 256, "block_n": 512, "fuse": True, "mode": "a"}
    assert found == make_config(axes, grid_order=("m", "n"))
    assert judge().read("default") == default_config(CHOICES)


def test_a_config_is_read_as_it_is_printed():
    """Sizes need not be choices: a person may know better."""
    text = "block_m=384 block_n=512 fuse=False mode=b order=n>m semantics=PA vmem=64MiB"
    assert str(judge().read(text)) == text
    assert judge().read(text.replace(" ", ",")) == judge().read(text)


def test_what_is_said_to_reproduce_a_trial_reads_back_to_its_config():
    for limit in (None, 64 << 20, 12345):
        config = judge().read("block_m=384,order=n>m,semantics=PA").replace(vmem_limit_bytes=limit)
        assert judge().read(config_text(config)) == config


def test_the_most_parallel_legal_semantics_are_taken_where_none_are_given():
    assert judge(semantics=True).read("block_m=256").dimension_semantics == ("parallel",) * 2
    given = judge(semantics=True).read("semantics=AA").dimension_semantics
    assert given == ("arbitrary",) * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("block_q=256", "no axis 'block_q': it has block_m, block_n, fuse, mode"),
        ("block_m", "'block_m' is not NAME=VALUE"),
        ("block_m=128,block_m=256", "is there twice"),
        ("block_m=-9", "block_m=-9: it must be a whole number from 1"),
        ("block_m=0", "it must be a whole number from 1"),
        ("block_m=1e3", "it must be a whole number from 1"),
        ("mode=c", "mode=c: it must be one of a, b"),
        ("fuse=2", "it must be one of False, True"),
        ("order=m>k", "order=m>k: the grid has m>n"),
        ("semantics=PX", "a letter for each grid axis"),
        ("semantics=P", "a letter for each grid axis"),
        ("vmem=many", "vmem=many: give MiB"),
        ("", "is not NAME=VALUE"),
    ],
)
def test_what_cannot_be_meant_is_told_with_the_remedy(text, words):
    with pytest.raises(InvalidInputError) as told:
        judge().read(text)
    assert words in str(told.value)


def test_a_config_is_made_whole_and_checked_as_its_text_is():
    part = Config(axes=(("block_m", 256),), vmem_limit_bytes=64 << 20)
    assert judge().complete(part) == judge().read("block_m=256,vmem=64MiB")


def test_what_the_rules_refuse_is_not_compiled():
    one = judge()
    compilers = one.compilers
    assert one.outcome(one.complete({"block_m": 7})) == Illegal(reason="seven")
    assert compilers.compiled_configs == []
    found = one.outcome(one.complete({"block_m": 256}))
    assert isinstance(found, Estimated) and len(compilers.compiled_configs) == 1


def test_axes_are_narrowed_and_the_others_stay():
    wanted = wanted_values(["mode=b"], ["block_m=256,640"])
    found = narrowed(CHOICES, wanted)
    assert found.axes == {**CHOICES.axes, "block_m": [256, 640], "mode": ["b"]}
    assert found.default == CHOICES.default


@pytest.mark.parametrize("only", ["block_m", "block_m=", "=1", "block_m=1,,2"])
def test_a_narrowed_axis_needs_values(only):
    with pytest.raises(InvalidInputError, match="is not AXIS=VALUE"):
        wanted_values([], [only])
