"""Who waits for the gate hears how far it is."""

from concurrent.futures import Future
from typing import Any

from autotune.domain.compilers import Underway, VerifyConfig
from autotune.domain.evidence import Verdict
from autotune.domain.key import Chip, KernelRef
from autotune.domain.problem import Problem, make_config
from autotune.publishing import publish as publishing
from tests.fakes.compiler import FakeCompilers

QUESTION = VerifyConfig(
    ref=KernelRef(path="k.py", attribute="K"),
    problem=Problem(dims=(("n", 8),), dtype="float32"),
    config=make_config({"b": 8}),
    chip=Chip.V5E,
)


class SlowCompilers(FakeCompilers):
    """Answers when the clock has been asked how much is left as often as there is an answer."""

    def __init__(self, *left_s):
        super().__init__()
        self._left, self._future = list(left_s), Future[Any]()

    def submit(self, _):
        return self._future

    def underway(self, _):
        left_s = self._left.pop(0)
        if not self._left:
            self._future.set_result(Verdict(ok=True))
        return None if left_s is None else Underway(left_s)


def test_each_few_seconds_it_is_said_how_long_it_goes_on(monkeypatch):
    monkeypatch.setattr(publishing, "_EVERY_S", 0.001)
    heard = []
    assert publishing.verdict_on(SlowCompilers(None, 9.0, 4.0), QUESTION, heard.append).ok
    assert ["left" in line for line in heard] == [False, True, True]
    assert "9 s left" in heard[1] and "4 s left" in heard[2] and "b=8" in heard[1]


def test_nobody_hears_of_what_is_there_at_once():
    heard = []
    compilers = FakeCompilers(verified=lambda _: Verdict(ok=True))
    assert publishing.verdict_on(compilers, QUESTION, heard.append).ok and not heard
