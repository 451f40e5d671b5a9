"""Where a decorated function stands: its text, for those that no other process can import."""

import sys
import types

import pytest

from autotune.declaring.calls.place import place_of
from autotune.domain.errors import InvalidInputError


@pytest.fixture
def script(tmp_path):
    return tmp_path / "script.py"


def test_the_part_of_a_script_has_what_a_star_brings(script):
    script.write_text("from math import *\nprint('searches')\ndef f(x):\n    return pi * x\n")
    found = {}
    exec(place_of("f", "__main__", str(script)).source, found)
    assert found["f"](2) > 6


@pytest.mark.parametrize("odd", ["\f", "\v", "\x85", "\u2028"])
def test_only_line_ends_end_a_line(script, odd):
    script.write_bytes(f"# {odd} odd\r\nA = '{odd}'\r\ndef f():\r\n    return A\r\n".encode())
    found = {}
    exec(place_of("f", "__main__", str(script)).source, found)
    assert found["f"]() == odd


@pytest.mark.parametrize(
    ("module", "file"), [("no.such.module", ""), (".".join("a" * 99), __file__)]
)
def test_what_no_other_process_finds_is_a_sentence(module, file):
    with pytest.raises(InvalidInputError):
        place_of("f", module, file)


def test_an_instance_with_slots_is_a_sentence(monkeypatch):
    code = "class Slotted:\n    __slots__ = ()\nONE = Slotted()\n"
    module = types.ModuleType("typed_in")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "typed_in", module)
    with pytest.raises(InvalidInputError, match="cannot be told what ONE is"):
        place_of("ONE", "typed_in", "")
