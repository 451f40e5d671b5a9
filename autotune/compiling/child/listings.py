"""The final listings of what a child has compiled last."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from autotune.compiling import libtpu, protocol
from autotune.compiling.child.serving import StageError
from autotune.domain.compilers import ASSEMBLED
from autotune.domain.key import Chip
from autotune.estimating.simulator import assembly, constants
from autotune.estimating.simulator.bundles import Listing

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


def listings(dump: Path, chip: Chip, *, is_whole: bool = True) -> dict[str, FinalListing]:
    """By name of the instruction. Put together where libtpu was asked for operations and log.
    Unless ``is_whole`` the compiler is at work: what it has not finished is left out.

    Raises ``StageError`` where those do not fit together: the question is to be asked again of a
    process that has libtpu print the listings.
    """
    if not libtpu.packing_is_logged():
        sources = libtpu.source_texts(dump) if libtpu.tells_lines() else {}
        return {
            name: FinalListing(text, libtpu.is_kernel(text), text, sources.get(name))
            for name, text in libtpu.listings(dump).items()
        }
    placed, opcodes = assembly.placements(libtpu.packing_log()), libtpu.opcodes(dump)
    timed = chip.value in constants.CHIPS
    slots = constants.load(chip.value, libtpu.version()).delay_slots if timed else 0
    final = {}
    for text in libtpu.operations(dump):
        name = assembly.function_name(text)
        try:
            made = assembly.assemble(text, placed.get(name, {}), delay_slots=slots)
        except assembly.AssemblyError as error:
            if is_whole:
                raise StageError(protocol.LISTING, error) from error
            continue
        if name in opcodes and len(made.listing.bundles) > 1:  # else it does nothing
            is_kernel = opcodes[name] == _KERNEL
            final[name] = FinalListing(made.listing, is_kernel, made.digest)
    return final


def program(listed: Iterable[FinalListing]) -> str:
    """A hash of the kernels among them."""
    kernels = "".join(listing.identity for listing in listed if listing.is_kernel)
    whole = hashlib.sha256(kernels.encode()).hexdigest()
    how = ASSEMBLED if libtpu.packing_is_logged() else ""
    return (how + whole)[:_PROGRAM_LETTERS]
