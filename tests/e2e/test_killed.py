"""``kill -9``, Ctrl-C and SIGTERM to a real search: what was finished stays, nothing else does."""

import re
import signal
import time
from random import Random

import pytest

from tests.e2e.killing import Victim
from tests.e2e.leftovers import wait_for_none

pytestmark = pytest.mark.slow

_TRIALS = 10


def test_kill_9_loses_nothing_and_nothing_is_compiled_twice(tmp_path):
    victim = Victim(tmp_path, _TRIALS)
    killed = victim.run_and_kill(Random(3))
    assert (killed.lost, killed.recompiled, killed.intact, killed.left) == (0, 0, True, ())
    assert 0 < killed.after < _TRIALS
    code, lost, recompiled = victim.finish()
    assert (code, lost, recompiled) == (0, 0, 0)
    assert sorted(victim.kept()) == list(range(_TRIALS))


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGINT], [signal.SIGINT] * 2, [signal.SIGTERM]],
    ids=["once", "twice", "term"],
)
def test_what_is_interrupted_ends_with_130_and_a_sentence(tmp_path, signals):
    victim = Victim(tmp_path, _TRIALS)
    process = victim.start()
    victim.wait_for_trials(process, 2)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.05)
    _, ended = process.communicate(timeout=100)  # a compiler may hang for 120 s
    kept = len(victim.kept())
    assert process.returncode == 130, ended
    assert re.search(rf"interrupted: {kept} trials? kept in ", ended)
    assert "Traceback" not in ended
    assert kept >= 2 and victim.intact()
    assert wait_for_none(victim.temporary, 60)[:2] == ([], [])
