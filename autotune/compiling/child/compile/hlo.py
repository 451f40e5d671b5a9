"""What the compiled HLO module says of its Pallas calls."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotune.compiling.child.trace.pallas_call import Call

_USED = re.compile(
    r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"'
)
KERNEL_TARGET = "tpu_custom_call"
PALLAS_CALL = f'custom_call_target="{KERNEL_TARGET}"'
_INSTRUCTION = re.compile(r"^ *(ROOT )?(?=%[\w.-]+ = )", re.M)  # its metadata may have lines
_OPERANDS = re.compile(r"operand_layout_constraints=\{((?:[^{}]|\{[^{}]*\})*)\}")
_SHAPE = re.compile(r"\b[a-z]+\d*(?:e\d+m\d+\w*)?\[([\d,]*)\]")
_NUMBER = re.compile(r"\.(\d+)")
_ON_SPARSE_CORE = '"compute_type":"COMPUTE_TYPE_'  # the TensorCore's have none
CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """A compiled Pallas call. ``name``: of the instruction, which its listing has too; shapes in
    elements; ``vmem_bytes``: scoped VMEM that it uses."""

    name: str
    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    vmem_bytes: int


def kernel_calls(hlo: str) -> list[KernelCall]:
    """The Pallas calls of a module but for SparseCores, in the order in which XLA made them."""
    texts = (text for _, text in instructions(hlo) if PALLAS_CALL in text)
    kernels = [_kernel_call(text) for text in texts if _ON_SPARSE_CORE not in text]
    return sorted(kernels, key=lambda call: [int(n) for n in _NUMBER.findall(call.name)])


def _kernel_call(text: str) -> KernelCall:
    name, _, rest = text.lstrip(" %").partition(" = ")
    results, _, call = rest.partition(" custom-call(")
    operands = _OPERANDS.search(call)
    used = _USED.search(call)
    return KernelCall(
        name=name,
        operands=_shapes(operands.group(1) if operands else ""),
        results=_shapes(results),
        vmem_bytes=int(used.group(1)) if used else 0,
    )


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(int(size) for size in sizes.split(",") if size) for sizes in _SHAPE.findall(text)
    )


def instructions(text: str) -> Iterator[tuple[bool, str]]:
    """Each instruction of a text, and whether its computation returns it."""
    _, *pieces = _INSTRUCTION.split(text)
    return ((root is not None, body) for root, body in zip(pieces[::2], pieces[1::2], strict=True))


_OTHER = re.compile(r"[^A-Za-z0-9_.-]")  # XLA writes them as underscores


def match(calls: Sequence[Call], compiled: Sequence[KernelCall]) -> list[KernelCall | None]:
    """For each call of the function the compiled one: of its shapes and, where several have those,
    of its name; those that are alike in both go in their order. None for one that XLA has dropped,
    or merged with another that does the same to the same operands."""
    left = list(compiled)
    matched: list[KernelCall | None] = []
    for call in calls:
        alike = [k for k in left if (list(k.operands), list(k.results)) == call.shapes()]
        named = [k for k in alike if k.name.startswith(_OTHER.sub("_", call.name))]
        chosen = next(iter(named or alike), None)
        if chosen is not None:
            left.remove(chosen)
        matched.append(chosen)
    return matched
