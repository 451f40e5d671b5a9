"""What runs on a node, without a cluster."""

import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from autotune.compiling.farm.pool import read_answer, sources_of
from autotune.compiling.farm.slot import CompilerSlot
from autotune.declaring.discovery import find_kernel
from autotune.declaring.fingerprint import fingerprint
from autotune.domain.codec import to_data
from autotune.domain.errors import CompilerUnavailableError
from autotune.domain.key import KernelRef
from tests.compiling.farm.conftest import SLEEPING

PID = {"kind": "pid"}


@pytest.fixture
def given_up():
    return Event()


@pytest.fixture
def slot(temporary, given_up):
    made = CompilerSlot(
        str(SLEEPING), {"gone"}.__contains__, given_up.is_set, end=lambda: None
    )  # it would end the tests
    yield made
    for driver in ("a", "b", "c"):
        made.leave(driver)
    assert list(temporary.iterdir()) == []


def ask(slot, driver, request, sources=None):
    return slot.ask(driver, request, sources, 60.0, 8 << 30)


def pid(slot, driver):
    return ask(slot, driver, PID)["answer"]["ok"]


def test_each_driver_has_a_child_of_its_own_that_stays_warm(slot):
    first, second = pid(slot, "a"), pid(slot, "b")
    assert first != second and pid(slot, "a") == first and pid(slot, "b") == second


def test_the_child_that_rests_longest_makes_room(slot):
    first, second = pid(slot, "a"), pid(slot, "b")
    pid(slot, "c")
    assert pid(slot, "b") == second and pid(slot, "a") != first


def test_what_is_given_up_ends_without_an_answer(slot, given_up, tmp_path, monkeypatch):
    asked = tmp_path / "asked"
    monkeypatch.setenv("FAKE_ASKED", str(asked))
    child = Path("/proc", str(pid(slot, "a")))
    found = []
    long = {"kind": "compile", "config": {"axes": {"sleep_ms": 3_600_000}}}
    thread = Thread(target=lambda: found.append(ask(slot, "a", long)))
    thread.start()
    while not asked.exists():
        time.sleep(0.01)
    given_up.set()
    thread.join()
    assert found == [{"interrupted": True}] == [ask(slot, "a", PID)]
    assert not child.exists()
    given_up.clear()
    assert "answer" in ask(slot, "a", PID)


def test_a_question_that_waited_is_not_answered_for_who_has_left(slot):
    assert ask(slot, "gone", PID) == {"interrupted": True}
    assert not slot._children and "answer" in ask(slot, "a", PID)


def test_a_child_that_takes_too_long_is_data(slot):
    pid(slot, "a")
    late = slot.ask(
        "a", {"kind": "compile", "config": {"axes": {"sleep_ms": 60_000}}}, None, 0.1, 1 << 33
    )
    assert "no answer within" in late["timed out"]


def test_a_file_comes_with_all_that_it_imports_from_beside_it(slot, tmp_path):
    home = tmp_path / "there"
    (home / "parts").mkdir(parents=True)
    (home / "kernel.py").write_text("import shown\nfrom parts import body\nKERNEL = body.run\n")
    (home / "shown.py").write_text("import json\n")  # the kernel does not rest on it
    (home / "parts" / "__init__.py").write_text("")
    (home / "parts" / "body.py").write_text("def run(): ...\n")
    (home / "other.py").write_text("")
    ref = KernelRef(path=str(home / "kernel.py"), attribute="KERNEL")
    request = {"kind": "echo", "ref": to_data(ref)}
    answer = ask(slot, "a", request, sources_of(ref))["answer"]["ok"]["ref"]
    there = Path(answer["path"])
    assert there != home / "kernel.py" and there.read_text() == (home / "kernel.py").read_text()
    names = {str(file.relative_to(there.parent)) for file in there.parent.rglob("*.py")}
    assert names == {"kernel.py", "shown.py", "parts/__init__.py", "parts/body.py"}
    assert fingerprint(KernelRef(path=str(there), attribute="KERNEL")) == fingerprint(ref)


@pytest.mark.parametrize("how", ["from .parts import run", "from pkg.parts import run"])
def test_a_file_of_a_package_comes_with_its_packages(slot, tmp_path, how):
    home = tmp_path / "there" / "pkg" / "inner"
    home.mkdir(parents=True)
    (home.parent / "__init__.py").write_text("from . import shared\n")
    (home.parent / "shared.py").write_text("")
    (home.parent / "parts.py").write_text("def run(): ...\n")
    (home / "__init__.py").write_text("")
    (home / "parts.py").write_text("def run(): ...\n")
    (home / "kernel.py").write_text(f"{how}\nKERNEL = run\n")
    ref = KernelRef(path=str(home / "kernel.py"), attribute="KERNEL")
    found = ask(slot, "a", {"kind": "echo", "ref": to_data(ref)}, sources_of(ref))
    there = Path(found["answer"]["ok"]["ref"]["path"])
    read = read_answer(found, {}, sources_of(ref))["ok"]["ref"]
    assert read["path"] == str(home / "kernel.py")
    assert there.relative_to(found["home"]) == Path("pkg/inner/kernel.py")
    loads = "import sys; sys.path[:0] = sys.argv[1:]; import pkg.inner.kernel"
    subprocess.run([sys.executable, "-c", loads, found["home"]], check=True, timeout=600)


def test_a_driver_that_the_cluster_has_forgotten_is_told():
    forgetful = CompilerSlot(has_left=lambda _: True)
    answer = forgetful.ask("a", {"kind": "echo"}, None, 60.0, 1 << 33)
    with pytest.raises(CompilerUnavailableError, match="give the command again"):
        read_answer(answer, {}, None)


def test_an_installed_kernel_is_the_one_of_the_node_if_it_is_the_same(slot):
    here = find_kernel("vector_add")
    elsewhere = KernelRef(
        path="/there/k.py", attribute=here.attribute, module=here.module, root="/there"
    )
    request, same = {"kind": "echo", "ref": to_data(elsewhere)}, sources_of(here)
    assert ask(slot, "a", request, same)["answer"]["ok"]["ref"] == to_data(here)
    assert "another source" in ask(slot, "b", request, {"fingerprint": "other"})["lacks"]
    unknown = to_data(KernelRef(path="", attribute="K", module="not_there"))
    assert "no kernel" in ask(slot, "b", {"kind": "echo", "ref": unknown}, same)["lacks"]
