"""Fingerprints that are known from an earlier start: to read all that a kernel rests on takes more
time than all else at the start of a model."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from autotune.answering.bundle import write_whole
from autotune.declaring import fingerprint as rule
from autotune.declaring import slices, sources
from autotune.domain.folders import cache_folder
from autotune.domain.key import KernelRef

_READS = [Path(str(module.__file__)) for module in (rule, sources, slices)]
_SETTLED_NS = 2 * 10**9  # a file that changes once more so soon may keep its time


def known_fingerprint(ref: KernelRef, form: str) -> str:
    """As ``declaring.fingerprint``: from disk, where no file has changed since that it rests on, or
    that could have come between. Raises ``OSError``."""
    folder = cache_folder()
    if ref.source or folder is None:
        return rule.fingerprint(ref, form)
    asked = (str(Path(ref.path).resolve()), ref.attribute, form, sys.version)
    file = folder / f"{sha256(repr(asked).encode()).hexdigest()[:16]}.fingerprint"
    with suppress(OSError, ValueError, TypeError):
        known, stamps = json.loads(file.read_bytes())
        if isinstance(known, str) and _stamps(stamps) == stamps:
            return known
    reached = sources.code(Path(ref.path), ref.attribute)
    fingerprint = rule.fingerprint_of(reached, ref, form)
    with suppress(OSError):
        stamps = _stamps(map(str, _read_with(reached)))
        if max(changed for changed, _ in stamps.values()) < time.time_ns() - _SETTLED_NS:
            write_whole(file, json.dumps([fingerprint, stamps]).encode())
    return fingerprint


def _read_with(reached: Iterable[Path]) -> Iterator[Path]:
    """Files, those that read them, and the folders in which another may appear."""
    yield from _READS
    for file in reached:
        yield from (file, file.parent, file.parent.parent)


def _stamps(paths: Iterable[str]) -> dict[str, list[int]]:
    """When each was changed, in nanoseconds, and its bytes. Raises ``OSError``."""
    stats = {path: Path(path).stat() for path in paths}
    return {path: [stat.st_mtime_ns, stat.st_size] for path, stat in stats.items()}
