"""Fingerprints of an earlier start, and hooks that wait for a module."""

import importlib
import os
import sys
from pathlib import Path

import pytest

from autotune.declaring.fingerprint import fingerprint
from autotune.domain.key import KernelRef
from autotune.python import fingerprint_cache
from autotune.python.install import WHEN_IMPORTED

LONG_AGO = 10**18  # nanoseconds


@pytest.fixture
def ref(tmp_path, monkeypatch):
    """Of a kernel that takes a number of the module beside it; both are old."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "own" / "kernels"
    home.mkdir(parents=True)
    (home / "beside.py").write_text("N = 1\n")
    (home / "k.py").write_text("from beside import N\nK = lambda x: x * N\n")
    for path in (home / "beside.py", home / "k.py", home, home.parent):
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return KernelRef(path=str(home / "k.py"), attribute="K")


def test_a_kernel_is_read_once(ref, monkeypatch):
    first = fingerprint_cache.known_fingerprint(ref, "")
    assert first == fingerprint(ref)
    with monkeypatch.context() as nothing_is_read:
        nothing_is_read.setattr(fingerprint_cache.sources, "code", None)
        assert fingerprint_cache.known_fingerprint(ref, "") == first
    assert fingerprint_cache.known_fingerprint(ref, "other") == fingerprint(ref, "other")


def test_what_has_changed_is_read_again(ref):
    first, home = fingerprint_cache.known_fingerprint(ref, ""), Path(ref.path).parent
    (home / "beside.py").write_text("N = 2\n")  # as many bytes
    os.utime(home / "beside.py", ns=(LONG_AGO + 1, LONG_AGO + 1))
    second = fingerprint_cache.known_fingerprint(ref, "")
    assert first != second == fingerprint(ref)
    (home / "beside").mkdir()
    (home / "beside" / "__init__.py").write_text("N = 3\n")
    assert fingerprint_cache.known_fingerprint(ref, "") == fingerprint(ref) != second


def test_what_has_just_changed_is_not_kept(ref, tmp_path):
    os.utime(ref.path)
    fingerprint_cache.known_fingerprint(ref, "")
    assert not [*(tmp_path / "cache").rglob("*.fingerprint")]


def test_a_damaged_file_is_no_fingerprint(ref, tmp_path):
    expected = fingerprint_cache.known_fingerprint(ref, "")
    (kept,) = (tmp_path / "cache").rglob("*.fingerprint")
    for damage in (b"", b"{}", b"[1, 2]", b'[3, "x"]', b"\xff"):
        kept.write_bytes(damage)
        assert fingerprint_cache.known_fingerprint(ref, "") == expected


def test_a_module_is_not_imported_for_its_hooks(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("waits_a", "waits_b"):
        (tmp_path / f"{name}.py").write_text("import sys\nif FAIL: raise ImportError\nX = 1\n")
    monkeypatch.setattr("builtins.FAIL", True, raising=False)
    done = list[int]()
    WHEN_IMPORTED.then("waits_a", lambda: done.append(sys.modules["waits_a"].X))
    with pytest.raises(ImportError):
        importlib.import_module("waits_a")
    assert done == []
    monkeypatch.setattr("builtins.FAIL", False, raising=False)
    importlib.import_module("waits_a")
    assert done == [1]
    WHEN_IMPORTED.then("waits_a", lambda: done.append(2))
    WHEN_IMPORTED.then("waits_b", lambda: done.append(3))
    WHEN_IMPORTED.forget()
    importlib.import_module("waits_b")
    assert done == [1, 2]
