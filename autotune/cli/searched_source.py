"""Where the kernel of a searched key is, and whether its source is still what it was."""

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from autotune.declaring.calls.text import called
from autotune.declaring.discovery import find_kernel
from autotune.declaring.fingerprint import fingerprint
from autotune.domain.errors import AutotuneError
from autotune.domain.key import KernelRef, Key
from autotune.wording.match import earlier_source


def kernel_of(store: Any, key: Key, given: str | None = None) -> KernelRef:
    """The kernel that was ``given``, else where the key was searched from, else the catalogue's; of
    a decorated function for calls like that of the key. Raises as ``find_kernel`` does."""
    place = given or _place(store, key) or key.kernel
    asked = store.searches.progress(key).asked
    return called(find_kernel(place), store.kernels(), key, asked)


def source_now(store: Any, key: Key, ref: KernelRef) -> str:
    """The fingerprint of the source at ``ref``, for calls of the form that the key is of. Raises
    ``OSError``."""
    spec = store.kernel(key.kernel, key.fingerprint)
    return fingerprint(ref, spec.form if spec else "")


def key_now(store: Any, key: Key) -> Key:
    """For the source of the kernel as it is now; the same where nobody knows where that is."""
    try:
        return replace(key, fingerprint=source_now(store, key, kernel_of(store, key)))
    except (AutotuneError, OSError):
        return key


def source_change(store: Any, key: Key, now: Key | None = None) -> str:
    """A sentence where the source of a kernel is not what the key is of; empty where it is, or
    nobody knows where it is. ``now``: its ``key_now``, where that is known."""
    if (now or key_now(store, key)) == key:
        return ""
    return earlier_source(key, store.searches.progress(key).asked)


def source_changes(store: Any, keys: Sequence[Key]) -> list[str]:
    """Those sentences of many keys: the source of each kernel is looked for only once."""
    first: dict[tuple[str, str], Key] = {}
    for key in keys:
        first.setdefault((key.kernel, key.fingerprint), key)
    said = {of: source_change(store, key) for of, key in first.items()}
    return list(filter(None, (said[key.kernel, key.fingerprint] for key in keys)))


def places(store: Any, keys: Iterable[Key]) -> dict[str, KernelRef]:
    """Where kernels were searched from, by name: those that are still there."""
    refs: dict[str, KernelRef] = {}
    for key in keys:
        if key.kernel in refs or not (place := _place(store, key)):
            continue
        with suppress(AutotuneError):
            refs[key.kernel] = find_kernel(place)
    return refs


def _place(store: Any, key: Key) -> str:
    """As it was said then; empty where nobody knows."""
    words = shlex.split(store.searches.progress(key).asked)
    return words[0] if words else ""
