"""The fingerprint of a kernel's source: it changes with what the kernel runs. What was tuned for
another one is answered as *earlier*, not as exact (``answering/matching.py``)."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from autotune.declaring.sources import code, whole_text
from autotune.domain.key import KernelRef


def fingerprint(ref: KernelRef, form: str = "") -> str:
    """Twelve hex digits of what the kernel runs, and of its ``form`` of call: the statements that
    its declaration rests on, here and in the modules that it imports from beside it. Not of
    comments, docstrings, layout, its default config and the choices of its axes. Raises
    ``OSError``."""
    return fingerprint_of(code(Path(ref.path), ref.attribute, ref.source), ref, form)


def fingerprint_of(reached: Mapping[Path, Sequence[str]], ref: KernelRef, form: str) -> str:
    """Of what ``code`` has read."""
    statements = [line for text in reached.values() for line in text]
    parts = [*statements, ref.attribute, *filter(None, [form])]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def searched_source(ref: KernelRef) -> str:
    """The same of all that is written there: with another default, or other choices, there may be
    more to try. Empty where it cannot be read."""
    try:
        text = whole_text(Path(ref.path), ref.source)
    except OSError:
        return ""
    return hashlib.sha256("\n".join([*text, ref.attribute]).encode()).hexdigest()[:12]


class ReadOnce:
    """Both of many calls of a few kernels: their files are read at the first."""

    def __init__(self) -> None:
        self._fingerprint, self._searched_source = cache(fingerprint), cache(searched_source)

    def fingerprint(self, ref: KernelRef, form: str) -> str:
        return self._fingerprint(replace(ref, call=""), form)

    def searched_source(self, ref: KernelRef) -> str:
        return self._searched_source(replace(ref, call=""))
