"""Compiler options that are worth a try, what each does, and whose scripts set it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from autotune.domain.compiler_options import VMEM_LIMIT, value_text
from autotune.domain.errors import InvalidInputError


class ListedOption(NamedTuple):
    """``does``: as far as it is known; ``source``: a file that sets it."""

    values: tuple[str, ...]
    does: str
    source: str


_TRILLIUM = "maxtext inference/mlperf/trillium/select_xla_flags.py"

LISTED: Mapping[str, ListedOption] = {
    VMEM_LIMIT: ListedOption(
        ("32768", "65536"),
        "VMEM for each of XLA's fusions, and for kernels that ask for no limit",
        "maxtext configs/tpu/v6e/llama2_7b_4096.sh",
    ),
    "xla_jf_conv_output_fusion": ListedOption(
        ("false",),
        "by its name: operations behind a product are not fused into it",
        _TRILLIUM,
    ),
    "xla_tpu_dot_dot_fusion": ListedOption(
        ("false",),
        "by its name: products are not fused with products",
        _TRILLIUM,
    ),
    "xla_tpu_enable_copy_fusion": ListedOption(
        ("false",),
        "by its name: copies are not fused into what reads them",
        _TRILLIUM,
    ),
}


def tuned_options(given: Iterable[str], *, listed: bool) -> dict[str, tuple[str, ...]]:
    """``NAME=A,B`` by name, over the list where that is wanted. Raises ``InvalidInputError``."""
    options = {name: option.values for name, option in LISTED.items()} if listed else {}
    for text in given:
        name, sign, values = text.lstrip("-").partition("=")
        parted = tuple(value_text(value) for value in values.split(","))
        if not (name and sign and all(parted)):
            raise InvalidInputError(
                f"--tune-compiler-option {text!r}: give NAME=A,B, such as {VMEM_LIMIT}=32768,65536"
            )
        options[name] = parted
    return options
