"""Values of axes as a person gives them."""

from collections.abc import Iterable, Mapping, Sequence

from autotune.domain.config import AxisValue
from autotune.domain.errors import InvalidInputError
from autotune.domain.kernel_spec import Choices


def narrowed(choices: Choices, wanted: Mapping[str, Sequence[str]]) -> Choices:
    """With those values only, for each axis that is named. Raises ``InvalidInputError``."""
    axes = dict(choices.axes)
    for name, values in wanted.items():
        axes[name] = [axis_value(choices, name, value) for value in values]
    return Choices(axes=axes, default=choices.default, grid=choices.grid)


def wanted_values(fixed: Iterable[str], only: Iterable[str]) -> dict[str, list[str]]:
    """``AXIS=VALUE`` and ``AXIS=A,B`` by axis. Raises ``InvalidInputError``."""
    wanted: dict[str, list[str]] = {}
    for text, values in (*((t, [t.partition("=")[2]]) for t in fixed), *map(_listed, only)):
        name, sign, _ = text.partition("=")
        if not (name and sign and all(values)) or name in wanted:
            raise InvalidInputError(
                f"{text!r} is not AXIS=VALUE, or its axis is named twice: give --fix block_q=512 "
                "or --only block_q=256,512"
            )
        wanted[name] = values
    return wanted


def _listed(text: str) -> tuple[str, list[str]]:
    return text, text.partition("=")[2].split(",")


def axis_value(choices: Choices, name: str, text: str) -> AxisValue:
    """A choice of the axis, or another size where it has sizes. Raises ``InvalidInputError``."""
    known = choices.axes.get(name)
    if known is None:
        raise InvalidInputError(
            f"the kernel has no axis {name!r}: it has {', '.join(choices.axes)}"
        )
    for value in (*known, choices.default[name]):
        if str(value).lower() == text.lower():
            return value
    has_sizes = any(isinstance(value, int) and not isinstance(value, bool) for value in known)
    if has_sizes and text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    wanted = "a whole number from 1" if has_sizes else f"one of {', '.join(map(str, known))}"
    raise InvalidInputError(f"{name}={text}: it must be {wanted}")
