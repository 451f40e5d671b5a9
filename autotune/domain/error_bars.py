"""Error bars that the measurements of one database ask for, on one chip with one toolchain."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBars:
    """``kernels`` and ``xla``: the shares that nine of ten measured times stay within, made without
    their own family; None where too few were measured to say anything. ``rows`` programs of
    ``families`` kernels were measured. A bar may be narrower than that of the product for kernels
    that ``narrows`` names what limits them, and for XLA where ``narrows_xla``."""

    rows: int
    families: int
    kernels: float | None = None
    xla: float | None = None
    narrows: tuple[str, ...] = ()
    narrows_xla: bool = False

    def kernel_error(self, limited_by: str, known: float | None) -> float | None:
        """``known``: the bar of the product, None where it has none."""
        return _wider(self.kernels, known, may_narrow=limited_by in self.narrows)

    def xla_error(self, known: float | None) -> float | None:
        """As ``kernel_error``, for what XLA itself makes."""
        return _wider(self.xla, known, may_narrow=self.narrows_xla)

    def __str__(self) -> str:
        plural = "s" * (self.families > 1)
        return f"{self.rows} programs of {self.families} kernel{plural}, timed with this database"


def _wider(measured: float | None, known: float | None, *, may_narrow: bool) -> float | None:
    if measured is None:
        return known
    if may_narrow:
        return measured
    return None if known is None else max(known, measured)
