"""The processor time of a server and of the processes that work for it."""

import subprocess
import sys

import psutil

from benchmarks.dashboard import between, processor_s


def test_a_process_that_comes_or_goes_counts_for_nothing() -> None:
    own = psutil.Process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as waiting:
        other = psutil.Process(waiting.pid)
        alone, both, again = (processor_s(lambda p=p: p) for p in ([other], [own, other], [other]))
        waiting.kill()
    assert both[own] > 0
    for before, after in ((alone, both), (both, again)):
        assert between(before, after) == after[other] - before[other]
    assert set(processor_s(lambda: [other, own])) == {own}
