"""Options of the TPU compiler, and the final listings of what a child has compiled last."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from autotune.compiling import libtpu, protocol
from autotune.compiling.child.serving import StageError
from autotune.domain.compiler_options import for_executable, parsed
from autotune.domain.compilers import ASSEMBLED
from autotune.domain.key import Chip
from autotune.estimating.simulator import assembly, constants
from autotune.estimating.simulator.bundles import Listing

_NOT_OF_EXECUTABLE = re.compile(r"No such compile option: '(\w+)'")


def compile_with(lowered: Any, options: str | None, **ours: str | bool) -> Any:
    """What JAX has lowered, with these options but for those that libtpu was loaded with, and with
    ``ours``, as far as it knows these. Raises ``StageError`` with the name of one that no program
    takes by itself; else what JAX raises."""
    loaded = parsed(os.environ.get(libtpu.READ_ONCE, ""))
    asked = {n: value for n, value in for_executable(options or "").items() if n not in loaded}
    given = asked | ours
    if not given:
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=given)
    except Exception as error:
        refused = _NOT_OF_EXECUTABLE.search(str(error))
        if refused is None:
            raise
        if ours.pop(refused[1], None) is not None:
            return compile_with(lowered, options, **ours)
        raise StageError(protocol.READ_ONCE, ValueError(refused[1])) from error


_PROGRAM_LETTERS = 16
_KERNEL = "custom-call"


class FinalListing(NamedTuple):
    """Of a Pallas call, or of XLA's own fusion or copy: as libtpu prints it or put together.
    ``identity``: equal texts are of equal programs. ``sources``: which line each operation comes
    from, where libtpu was asked for that."""

    listing: str | Listing
    is_kernel: bool
    identity: str
    sources: libtpu.SourceTexts | None = None


def listings(dump: Path, chip: Chip) -> dict[str, FinalListing]:
    """By name of the instruction. Put together where libtpu was asked for operations and log.

    Raises ``StageError`` where those do not fit together: the question is to be asked again of a
    process that has libtpu print the listings.
    """
    final = {}
    for name, made in Arriving(dump, chip).more(is_last=True):
        if isinstance(made, assembly.AssemblyError):
            raise StageError(protocol.LISTING, made) from made
        if made:
            final[name] = made
    return final


class Arriving:
    """The listings of what is being compiled, as they come."""

    def __init__(self, dump: Path, chip: Chip) -> None:
        timed = chip.value in constants.CHIPS
        self._slots = constants.load(chip.value, libtpu.version()).delay_slots if timed else 0
        self._dump, self._placed, self._read = dump, assembly.Placements(), 0
        self._seen = set[Path]()

    def more(
        self, *, is_last: bool
    ) -> Iterator[tuple[str, FinalListing | assembly.AssemblyError | None]]:
        """Those that came since, by name of the instruction; None for one that does nothing. Unless
        it ``is_last`` the compiler is at work: what it has not finished comes later."""
        if not libtpu.packing_is_logged():
            yield from self._printed() if is_last else ()
            return
        new = [path for path in libtpu.operations(self._dump) if path not in self._seen]
        if new:
            log, self._read = libtpu.packing_log(self._read)
            self._placed.read(log.decode(errors="replace"))
        opcodes = libtpu.opcodes(self._dump) if new else {}
        for path in new:
            text = path.read_text()
            name = assembly.function_name(text)
            try:
                made = assembly.assemble(text, self._placed.of(name), delay_slots=self._slots)
            except assembly.AssemblyError as error:
                if is_last:
                    yield name, error
                continue
            self._seen.add(path)
            self._placed.forget(name)
            if name in opcodes:
                is_kernel, works = opcodes[name] == _KERNEL, len(made.listing.bundles) > 1
                yield name, FinalListing(made.listing, is_kernel, made.digest) if works else None

    def _printed(self) -> Iterator[tuple[str, FinalListing]]:
        sources = libtpu.source_texts(self._dump) if libtpu.tells_lines() else {}
        for name, text in libtpu.listings(self._dump).items():
            yield name, FinalListing(text, libtpu.is_kernel(text), text, sources.get(name))


def program(listed: Iterable[FinalListing]) -> str:
    """A hash of the kernels among them."""
    kernels = "".join(listing.identity for listing in listed if listing.is_kernel)
    whole = hashlib.sha256(kernels.encode()).hexdigest()
    how = ASSEMBLED if libtpu.packing_is_logged() else ""
    return (how + whole)[:_PROGRAM_LETTERS]
