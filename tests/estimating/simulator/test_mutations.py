"""A listing that is cut, shuffled or garbled is refused, or still gives the right answer."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.samples import recordings

NAMES = [
    "v4-0.10.2-loop_1024_512_128",
    "v5e-0.10.2-loop_1024_512_128",
    "v5e-0.6.2-mm_1024_1024_1024_128_128_128",
    "v7x-0.12.0.1-loop_16384_1024_128",
]
TEXTS = {name: recordings.text(name) for name in NAMES}
CPU_S = 60.0  # of this process, which no other one changes; far above any of these


def outcome(name, text):
    began = time.process_time()
    result = recordings.simulate(text, chip=recordings.chip(name))
    assert time.process_time() - began < CPU_S
    return result


@given(name=st.sampled_from(NAMES), share=st.floats(0, 0.999))
def test_truncated(name, share):
    text = TEXTS[name]
    cut = text[: int(len(text.rstrip()) * share)]
    result = outcome(name, cut)
    assert isinstance(result, recordings.NotSimulated)


@given(
    name=st.sampled_from(NAMES),
    share=st.floats(0, 1),
    noise=st.text(alphabet=st.sampled_from("{}[](),;:/*%= \n<>$#x0"), min_size=1, max_size=8),
)
def test_punctuation_inserted_never_raises_or_hangs(name, share, noise):
    text = TEXTS[name]
    at = int(len(text) * share)
    outcome(name, text[:at] + noise + text[at:])


@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32))
def test_numbers_and_names_garbled_never_raise_or_hang(name, seed):
    """Such a listing may be a valid one of another kernel: only the manner is promised."""
    rng, text = random.Random(seed), TEXTS[name]
    for _ in range(rng.randint(1, 20)):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice("0123456789sp_") + text[at + 1 :]
    outcome(name, text)


@pytest.mark.parametrize("filler", [" ", "\n", "/", "*", "{", ";;", "[", "%s1_s1 = ", "0x1"])
def test_long_runs_take_no_time(filler):
    run = filler * (200_000 // len(filler))
    name = "v5e-0.10.2-loop_1024_512_128"
    half = len(TEXTS[name]) // 2
    outcome(name, run)
    outcome(name, TEXTS[name][:half] + run + TEXTS[name][half:])
    outcome(name, TEXTS[name] + run)
