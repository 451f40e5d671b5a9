"""The processor time of a server and of the processes that work for it."""

import subprocess
import sys

import psutil

from benchmarks.dashboard import between, processor_s


def test_a_process_that_comes_or_goes_counts_for_nothing() -> None:
    own = psutil.Process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as waiting:
        gone = psutil.Process(waiting.pid)
        alone, both = processor_s(lambda: [own]), processor_s(lambda: [gone, own])
        waiting.kill()
    after = processor_s(lambda: [gone, own])
    assert set(both) == {gone, own}
    assert set(after) == {own}
    for before, now in ((alone, both), (both, after)):
        assert between(before, now) == now[own] - before[own]
