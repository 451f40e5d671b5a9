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


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_ctrl_c_ends_with_130_and_a_sentence(tmp_path, again):
    victim = Victim(tmp_path, _TRIALS)
    process = victim.start()
    victim.wait_for_trials(process, 2)
    ended = _end(process, signal.SIGINT, again)
    kept = len(victim.kept())
    assert process.returncode == 130, ended
    assert re.search(rf"interrupted: {kept} trials? kept in ", ended)
    assert "Traceback" not in ended
    assert kept >= 2
    assert wait_for_none(victim.temporary, 60)[:2] == ([], [])


def test_sigterm_leaves_every_trial_and_no_child(tmp_path):
    victim = Victim(tmp_path, _TRIALS)
    process = victim.start()
    victim.wait_for_trials(process, 2)
    _end(process, signal.SIGTERM, again=False)
    assert process.returncode != 0
    assert len(victim.kept()) >= 2
    assert victim.intact()
    assert wait_for_none(victim.temporary, 60)[:2] == ([], [])


def _end(process, number, again):
    """What it writes to stderr after a signal, or two."""
    process.send_signal(number)
    if again:
        time.sleep(0.05)
        process.send_signal(number)
    _, errors = process.communicate(timeout=100)  # a compiler may hang for 120 s
    return errors
