"""Scalar operations to Python expressions on signed 32-bit values.

Constants are printed unsigned (4294967295 is -1). Predicates are truth values.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from autotune.estimating.simulator.bundles import Operation
from autotune.estimating.simulator.outcome import UnfitError

ALLOCATION_SHIFT = 20  # every #allocationN gets 2**20 addresses of its own
SHARED_ALLOCATION = (1 << 10) - 1  # of all others: each DMA has a null and a dummy flag of its own
_MASK = 0xFFFFFFFF

_ATTRIBUTE = re.compile(r"\[(?:thread|resolvable)[^\]]*\]")
_GUARD = re.compile(r"\((!?)(%\w+)(?:, ([^(),]+))?\)")
_MEMORY = re.compile(r"\[smem:\[([^\]]*)\]\]")
_SPILL_SLOT = re.compile(r"#(allocation\d{1,9}_spill)\Z")
_ARGUMENT = re.compile(r"(?:(\w+)=)?(\[[^\]]*\]|[^\s,]+)")
_NAME = re.compile(r"%(\w{1,60})\Z")
_NUMBER = re.compile(r"\$?(-?\d{1,10}|0x[0-9a-f]{1,8})\Z")
_ALLOCATION = re.compile(r"#allocation(\d{1,9})\Z")


class Expression(NamedTuple):
    """Python source, and the SSA names it reads."""

    source: str
    reads: tuple[str, ...] = ()


class Guard(NamedTuple):
    """The predicate of an operation; ``old`` is the result when it does not execute."""

    test: str
    predicate: str
    old: Expression | None


class Instruction(NamedTuple):
    """A scalar, control or DMA operation with its arguments understood."""

    name: str
    opcode: str
    guard: Guard | None
    arguments: tuple[Expression, ...]
    argument_names: tuple[str, ...]
    slot: str  # spill slot of an sst or sld, "" for other memory
    address: Expression | None  # SMEM address of an sst or sld that is no spill

    def reads(self) -> tuple[str, ...]:
        """Return every SSA name this instruction reads."""
        parts = [*self.arguments, *([self.address] if self.address else [])]
        if self.guard:
            old = self.guard.old or Expression("")
            parts += [Expression("", (self.guard.predicate,)), old]
        return tuple(name for part in parts for name in part.reads)


def understand(operation: Operation) -> Instruction:
    """Return the operation with guard, memory address and arguments told apart."""
    text = _ATTRIBUTE.sub("", operation.text)
    guard, text = _split_guard(text)
    slot, address = "", None
    if operation.opcode in ("sst", "sld"):
        slot, address, text = _split_memory(text)
    text = text.partition(" target ")[0] if operation.opcode == "sbr.rel" else text
    arguments = [] if operation.opcode == "sbr.rel" else _arguments(text)
    return Instruction(
        name=operation.name,
        opcode=operation.opcode,
        guard=guard,
        arguments=tuple(_expression(argument) for _, argument in arguments),
        argument_names=tuple(name for name, _ in arguments),
        slot=slot,
        address=address,
    )


def _split_guard(text: str) -> tuple[Guard | None, str]:
    match = _GUARD.search(text)
    if match is None:
        return None, text
    name = identifier(match[2])
    old = _expression(match[3].strip()) if match[3] else None
    guard = Guard(f"not {name}" if match[1] else name, match[2], old)
    return guard, text[: match.start()] + text[match.end() :]


def _split_memory(text: str) -> tuple[str, Expression | None, str]:
    match = _MEMORY.search(text)
    if match is None:
        raise UnfitError(f"unreadable scalar memory access: {text[:60]!r}")
    rest = text[: match.start()] + text[match.end() :]
    spill = _SPILL_SLOT.match(match[1])
    return (spill[1], None, rest) if spill else ("", _sum(match[1]), rest)


def _arguments(text: str) -> list[tuple[str, str]]:
    """Split at commas; a second word in a piece is an annotation (`%s1 [#allocation2]`)."""
    pieces = (_ARGUMENT.match(piece.strip()) for piece in text.split(","))
    return [(piece[1] or "", piece[2]) for piece in pieces if piece]


def identifier(name: str) -> str:
    """Return the Python identifier for an SSA name."""
    match = _NAME.match(name)
    if match is None:
        raise UnfitError(f"unreadable name {name[:40]!r}")
    return f"x_{match[1]}"


def _expression(text: str) -> Expression:
    if text.startswith("["):
        return _sum(text.strip("[]"))
    if text.startswith("%"):
        return Expression(identifier(text), (text,))
    return Expression(str(_number(text)))


def _sum(text: str) -> Expression:
    terms = [_term(term.strip()) for term in text.split(" + ")]
    reads = tuple(name for term in terms for name in term.reads)
    return Expression("(" + "+".join(term.source for term in terms) + ")", reads)


def allocation_address(number: str) -> int:
    """Where an ``#allocationN`` begins."""
    return min(int(number), SHARED_ALLOCATION) << ALLOCATION_SHIFT


def _term(text: str) -> Expression:
    allocation = _ALLOCATION.match(text)
    if allocation is None:
        return _expression(text)
    return Expression(str(allocation_address(allocation[1])))


def _number(text: str) -> int:
    match = _NUMBER.match(text)
    if match is None:
        raise UnfitError(f"unreadable argument {text[:40]!r}")
    return _signed(int(match[1], 0 if match[1].startswith("0x") else 10))


def _signed(value: int) -> int:
    return ((value + 0x80000000) & _MASK) - 0x80000000


def _wrap(source: str) -> str:
    return f"(({source})+2147483648&{_MASK})-2147483648"


_TEMPLATES: dict[str, tuple[int, str]] = {  # opcode -> arity, expression
    "sadd": (2, _wrap("{0}+{1}")),
    "ssub": (2, _wrap("{0}-{1}")),
    "smul": (2, _wrap("{0}*{1}")),
    "smulhi": (2, _wrap(f"(({{0}}&{_MASK})*({{1}}&{_MASK}))>>32")),  # seen unsigned only
    "sand": (2, "{0}&{1}"),
    "sor": (2, "{0}|{1}"),
    "sxor": (2, "{0}^{1}"),
    "sshll": (2, _wrap("{0}<<({1}&63)")),
    "sshra": (2, "{0}>>({1}&63)"),
    "sshrl": (2, _wrap(f"({{0}}&{_MASK})>>({{1}}&63)")),
    "squotient": (2, _wrap(f"({{0}}&{_MASK})//(({{1}}&{_MASK}) or {_MASK})")),
    "sremainder": (2, _wrap(f"({{0}}&{_MASK})%(({{1}}&{_MASK}) or {_MASK})")),
    "sc": (2, f"(({{0}}&{_MASK})+({{1}}&{_MASK}))>{_MASK}"),  # the carry of an unsigned sum
    "smov": (1, "{0}"),
    "pmov": (1, "{0}"),
    "scalar_lea": (2, _wrap("{0}+{1}")),
    "int_to_ptr": (1, "{0}"),
    "scalar_select": (3, "{1} if {0} else {2}"),
    "por": (2, "{0} or {1}"),
    "pand": (2, "{0} and {1}"),
    "pnand": (2, "not ({0} and {1})"),
    "pneg": (1, "not {0}"),
}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TYPED = re.compile(r"(s[a-z]+)(?:\.[su]32)?\Z")
_COMPARE = re.compile(r"scmp\.(eq|ne|lt|le|gt|ge)\.([su])32\.totalorder\Z")
_EXTREME = re.compile(r"s(min|max)\.([su])32\Z")
_SPACED = re.compile(r"(scalar_lea|int_to_ptr)\.\w+\Z")


def value_of(instruction: Instruction) -> str:
    """Return the Python expression of a scalar operation; UnfitError for an unknown opcode."""
    arity, template = _template(instruction.opcode)
    if len(instruction.arguments) != arity:
        raise UnfitError(f"{instruction.opcode} with {len(instruction.arguments)} arguments")
    return template.format(*(argument.source for argument in instruction.arguments))


def _template(opcode: str) -> tuple[int, str]:
    compare, extreme = _COMPARE.match(opcode), _EXTREME.match(opcode)
    if compare:
        return 2, _unsigned("{0}" + _COMPARISONS[compare[1]] + "{1}", compare[2])
    if extreme:
        relation = _unsigned("{0}<{1}" if extreme[1] == "min" else "{0}>{1}", extreme[2])
        return 2, f"{{0}} if {relation} else {{1}}"
    plain = _SPACED.match(opcode) or _TYPED.match(opcode)
    known = _TEMPLATES.get(plain[1] if plain else opcode)
    if known is None:
        raise UnfitError(f"unknown opcode {opcode} decides the time of this kernel")
    return known


def _unsigned(template: str, kind: str) -> str:
    """Compare as unsigned where the opcode says so: values are kept signed."""
    if kind == "s":
        return template
    return template.replace("{0}", f"({{0}}&{_MASK})").replace("{1}", f"({{1}}&{_MASK})")
