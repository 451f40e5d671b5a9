"""What a search tells to those who watch it from elsewhere."""

from collections import Counter
from dataclasses import dataclass, field

from autotune.domain.errors import StoreError
from autotune.domain.job import Progress
from autotune.domain.outcome import Illegal
from autotune.domain.problem import Config
from autotune.estimating.space import Space
from autotune.publishing.progress import Reported
from autotune.wording.bars import Lines, Pace, SilentObserver
from tests.samples import records

SPACE = Space(
    candidates=[],
    default=Config(axes=()),
    default_verdict=None,
    raw_points=7,
    refused=Counter({Illegal(reason="misaligned"): 3}),
)


@dataclass
class Heard:
    said: list[tuple[str, Progress, bool]] = field(default_factory=list)
    gone: bool = False

    def report(self, key, space, progress, *, over):
        assert key == records.key()
        if self.gone:
            raise StoreError("the disk is full")
        self.said.append((space, progress, over))

    def progress(self, key):
        return Progress()

    def status(self, key_id):
        raise NotImplementedError


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def started(heard, clock, earlier=()):
    observer = Reported(SilentObserver(), heard, records.key(), "mm --shape m=8", clock=clock)
    observer.space_ready(SPACE, earlier, 9)
    return observer


def test_it_tells_what_the_terminal_shows():
    heard, clock = Heard(), Clock()
    observer = started(heard, clock, [records.trial(0, Illegal(reason="no"))])
    observer.announce("verifying trial 1")
    observer.end()
    assert [(p.done, p.goal, p.note, over) for _, p, over in heard.said] == [
        (1, 9, "compiling", False),
        (1, 9, "verifying trial 1", False),
        (1, 9, "", True),
    ]
    assert heard.said[0][0].startswith("7 points; 0 candidates; refused: 3 misaligned")


def test_it_tells_at_most_once_a_second_but_always_the_last():
    heard, clock = Heard(), Clock()
    observer = started(heard, clock)
    for number in range(4):
        observer.trial_done(records.trial(number))
    assert len(heard.said) == 1
    clock.now = 1.5
    observer.trial_done(records.trial(4))
    assert heard.said[-1][1].done == 5
    for number in range(5, 9):
        observer.trial_done(records.trial(number))
    assert heard.said[-1][1].done == 9


def test_a_log_says_at_once_what_is_done_before_the_first_trial(monkeypatch):
    lines = []
    log = Lines(lines.append)
    log.tracing(1, 384)  # so soon that nobody waits
    monkeypatch.setattr(Pace, "_EVERY_S", -1.0)
    log.tracing(154, 384)
    assert lines == ["tracing 384 configs of the space, 40%"]
