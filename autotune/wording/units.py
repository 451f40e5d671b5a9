"""Numbers as people read them, each with its unit."""


def micros(time_us: float | None) -> str:
    """Three or four significant digits: µs below 10 ms, ms above."""
    if time_us is None:
        return "–"
    if time_us >= 10_000:
        return f"{time_us / 1000:,.1f} ms"
    return f"{time_us:,.1f} µs" if time_us < 1000 else f"{time_us:,.0f} µs"


def part_us(us: float) -> str:
    """Microseconds, with a digit more below one."""
    return f"{us:.2f} µs" if 0 < us < 0.95 else micros(us)


def mebibytes(size_bytes: int) -> str:
    return (
        f"{size_bytes / 2**20:,.2f} MiB" if size_bytes < 2**30 else f"{size_bytes / 2**30:.2f} GiB"
    )


def size(size_bytes: int) -> str:
    """Bytes below a KiB, KiB below a MiB, then as ``mebibytes``."""
    if size_bytes < 2**10:
        return f"{size_bytes} B"
    if size_bytes >= 2**20:
        return mebibytes(size_bytes)
    return f"{size_bytes / 2**10:.1f}".removesuffix(".0") + " KiB"


def ratio(numerator: float | None, denominator: float | None) -> str:
    """``1.25×``, or a dash where there is nothing to compare."""
    if not numerator or not denominator:
        return "–"
    return f"{numerator / denominator:.2f}×"


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def error_bar(share: float | None, digits: int = 0) -> str:
    """``± 5%``."""
    if share is not None and share > 1:
        return "± over 100%"
    return "± unknown" if share is None else f"± {share:.{digits}%}"


def counted(count: int, noun: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{count} {noun}" + "s" * (count != 1)
