"""The boundary itself, with a fake worker behind it: limits that really kill, deaths that tell."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from autotune.compiling import libtpu, process_tree, protocol
from autotune.compiling.process import (
    ChildDiedError,
    ChildTimedOutError,
    CompilerInterruptedError,
)
from autotune.compiling.process_tree import MemoryWatch
from autotune.domain.compilers import Underway
from autotune.domain.errors import CompilerUnavailableError
from tests.servers.service import until

HANG = {"kind": "hang"}


def echo(value):
    return {"kind": "echo", "value": value}


def died(process, request):
    with pytest.raises(ChildDiedError) as caught:
        process.ask(request, 20)
    return caught.value


@contextmanager
def soon():
    """On the busiest machine, and long before what hangs would have ended by itself."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < 100


@pytest.mark.parametrize(
    "value",
    ["ünïcode ✗ 日本 \u2028 \ud800", "two\nlines", [1.5, None, {"a": True}], "x" * (3 << 20)],
    ids=["unicode", "lines", "values", "3 MiB"],
)
def test_what_goes_out_comes_back(fake, value):
    assert fake.ask(echo(value), 20) == {"ok": value}


@pytest.mark.parametrize(
    ("text", "underway"),
    [
        ("7.5", Underway(7.5)),
        ("7.5 2 9", Underway(7.5, 2, 9)),
        ("-1", None),  # that long it took already
        ("7.5 s", None),
        ("1 2 3 4", None),
        ("", None),
    ],
)
def test_a_child_may_tell_how_far_it_is(fake, text, underway):
    assert fake.underway is None
    fake.ask({"kind": "tell", "text": text}, 20)
    assert fake.underway == pytest.approx(underway, abs=5)
    fake.ask(echo(1), 20)
    assert fake.underway is None


def pid_of(process):
    return process.ask({"kind": "pid"}, 20)["ok"]


def test_a_child_is_started_once_and_the_time_limit_kills_it_with_what_it_has_started(fake, alive):
    assert not fake.running
    pid, family = pid_of(fake), fake.ask({"kind": "family"}, 20)["ok"]
    assert pid_of(fake) == pid and fake.running and all(map(alive, family))
    with soon(), pytest.raises(ChildTimedOutError, match=r"no answer within 0\.3 s"):
        fake.ask(HANG, 0.3)
    until(lambda: not any(map(alive, (pid, *family))))  # what has been killed may take a moment
    assert not fake.running
    assert pid_of(fake) != pid


def test_waiting_for_a_processor_that_others_have_is_not_counted(fake):
    """It needs 0.4 s and has a sixth of a processor."""
    pid = pid_of(fake)
    busy = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(busy) for _ in range(5)]
    try:
        for one in (pid, *(other.pid for other in others)):
            os.sched_setaffinity(one, {0})
        assert fake.ask({"kind": "work", "processor_s": 0.4}, 1.0) == {"ok": True}
        with soon(), pytest.raises(ChildTimedOutError):
            fake.ask({"kind": "work", "processor_s": 1000}, 0.3)
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_what_always_waits_for_a_processor_ends(fake, monkeypatch):
    monkeypatch.setattr(process_tree, "_waits", lambda tasks: {"1": time.monotonic_ns()})
    with pytest.raises(ChildTimedOutError):
        fake.ask(HANG, 0.1)


def test_the_log_does_not_grow(fake, temporary):
    fake.ask(echo(1), 20)
    (log,) = temporary.glob("autotune-compiler-*/log")
    log.write_text("much" * 10_000)
    fake.ask(echo(2), 20)
    assert log.stat().st_size == 0


def test_an_exit_code_is_told_and_no_zombie_stays(fake):
    for _ in range(3):
        assert "exit code 3 in the middle" in str(died(fake, {"kind": "exit", "code": 3}))
    states = [child.status() for child in psutil.Process().children()]
    assert psutil.STATUS_ZOMBIE not in states


def test_a_child_that_never_reads_does_not_block_the_parent(make_fake, monkeypatch):
    monkeypatch.setenv("FAKE_WORKER_DEAF", "1")
    with soon(), pytest.raises(ChildTimedOutError):
        make_fake().ask(echo("x" * (4 << 20)), 0.5)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGABRT, "died of SIGABRT (Aborted)"),
        (signal.SIGSEGV, "died of SIGSEGV (Segmentation fault)"),
        (signal.SIGKILL, "died of SIGKILL (Killed), sent from outside: most often the system has"),
        (40, "died of signal 40"),
    ],
)
def test_a_death_names_its_signal_and_its_last_words(fake, number, words):
    fake.ask(echo(1), 20)
    error = died(fake, {"kind": "die", "signal": number, "words": "last ünïcode words"})
    assert words in str(error)
    assert error.log_tail == "last ünïcode words"
    assert fake.ask(echo(2), 20) == {"ok": 2}


def test_the_last_words_are_those_of_this_request(fake):
    died(fake, {"kind": "die", "signal": 6, "words": "first"})
    many = "\n".join(f"line {n}" for n in range(100_000))
    tail = died(fake, {"kind": "die", "signal": 6, "words": many}).log_tail.splitlines()
    assert tail == [f"line {n}" for n in range(100_000 - 12, 100_000)]


def test_a_death_is_seen_though_a_grandchild_holds_the_pipe(fake):
    with soon():
        assert "exit code 7" in str(died(fake, {"kind": "leave"}))


@pytest.mark.parametrize("words", ["garbage", '{"ok": 1}\n{"ok": 2}', "[]", "\x00\x01"])
def test_nonsense_is_a_death_of_the_child_not_of_the_parent(fake, words):
    assert "answered nonsense" in str(died(fake, {"kind": "nonsense", "words": words}))
    assert fake.ask(echo(1), 20) == {"ok": 1}


@pytest.mark.parametrize("talking", [False, True], ids=["silent", "talking"])
def test_the_memory_limit_kills(make_fake, talking):
    process = make_fake(memory_bytes=100 << 20)
    error = died(process, {"kind": "eat", "bytes": 150 << 20, "talking": talking})
    assert str(error) == "out of memory: killed at the limit of 0.1 GiB"


@pytest.mark.parametrize("kernel_lists", [True, False])
def test_memory_is_that_of_all_that_it_has_started(fake, monkeypatch, kernel_lists):
    if not kernel_lists:
        monkeypatch.setattr("autotune.compiling.process_tree._LISTED", Path("/not/there"))
    monkeypatch.setattr("autotune.compiling.process_tree._FAMILY_EVERY_S", 0.0)
    root = pid_of(fake)
    pids = [root, *fake.ask({"kind": "family"}, 20)["ok"]]

    def sum_bytes():
        return sum(psutil.Process(pid).memory_info().rss for pid in pids)

    least = sum_bytes()  # those that still start have more each time
    assert least <= MemoryWatch(root).resident_bytes() <= sum_bytes()


def test_interrupt_from_another_thread(fake):
    fake.ask(echo(1), 20)
    timer = threading.Timer(0.2, fake.interrupt)
    timer.start()
    with soon(), pytest.raises(CompilerInterruptedError):
        fake.ask(HANG, 60)
    timer.join()
    assert not fake.running


def test_nothing_starts_after_close(fake, temporary, monkeypatch):
    fake.ask(echo(1), 20)
    fake.close()
    fake.close()
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(CompilerInterruptedError):
        fake.ask(echo(2), 20)
    assert list(temporary.iterdir()) == []


def test_a_stop_that_was_cut_short_is_finished_by_the_next(fake, temporary, monkeypatch):
    fake.ask(echo(1), 20)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            fake.close()
    fake.close()
    assert list(temporary.iterdir()) == []


def _interrupted(*args, **kwargs):
    raise KeyboardInterrupt


def test_a_missing_interpreter_is_a_sentence(make_fake, temporary):
    with pytest.raises(CompilerUnavailableError, match="No such file or directory") as caught:
        make_fake("/no/such/python").ask(echo(1), 5)
    assert "the interpreter /no/such/python cannot be started" in str(caught.value)
    assert list(temporary.iterdir()) == []


def test_a_temporary_folder_with_spaces_is_not_given_to_libtpu(fake, tmp_path, monkeypatch):
    (tmp_path / "with spaces").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "with spaces"))
    fake.ask(echo(1), 20)
    assert list((tmp_path / "with spaces").iterdir()) == []


def test_a_temporary_folder_that_cannot_be_written_is_a_sentence(fake, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(CompilerUnavailableError, match="no temporary folder can be made"):
        fake.ask(echo(1), 5)


def test_a_full_disk_is_a_sentence(fake, monkeypatch):
    usage = namedtuple("usage", "free")
    fake.ask(echo(1), 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(free=5 << 20))
    with pytest.raises(CompilerUnavailableError, match="only 5 MiB are free in "):
        fake.ask(echo(2), 5)
    assert not fake.running


@pytest.mark.parametrize(
    ("jaxlib", "version", "flags"),
    [
        ("0.10.2", "0.0.42.1", 2),
        ("0.10.2", "0.0.50.1", 1),
        ("0.12.0.1", "0.0.50.1", 1),
        ("0.6.2", "0.0.17.1", 1),
    ],
)
def test_xla_is_given_no_flag_that_it_would_abort_for(jaxlib, version, flags):
    assert len(libtpu.interpreting_flags(jaxlib, version).split()) == flags


@pytest.mark.parametrize("stage", [protocol.LISTING, protocol.LINES])
def test_what_libtpu_was_not_loaded_to_print_is_asked_again_where_it_does(fake, alive, stage):
    """For good: the next question meets the same child."""
    first = pid_of(fake)
    printing = fake.ask({"kind": "list", "stage": stage}, 20)["ok"]
    assert not alive(first)
    assert fake.ask({"kind": "list", "stage": stage}, 20) == {"ok": printing}
    assert pid_of(fake) == printing


def test_notes_of_a_log_are_not_last_words(fake):
    notes = "I1123 18:43:58.0 7 bundle_packer.cc:789] placing\n\tscheduled bundleno: 0x1\n"
    words = f"F1123 it cannot go on\n{notes}W1123 a warning\n{notes}".rstrip()
    tail = died(fake, {"kind": "die", "words": words, "signal": 6}).log_tail
    assert tail.split("\n") == ["F1123 it cannot go on", "W1123 a warning"]
