"""The version of this product, which the package metadata reads, and those of what is installed."""

import re

NAME, VERSION = "pallas-autotune", "0.1.0"


def installed_version(package: str) -> str | None:
    """Read without importing it; None where there is none. The rest of its metadata, which holds a
    whole README, takes a client ten times as long to read."""
    from importlib.metadata import PackageNotFoundError, distribution  # most clients start without

    try:
        metadata = distribution(package).read_text("METADATA")
    except PackageNotFoundError:
        return None
    stated = re.search(r"^Version: *(\S+)", metadata or "", re.MULTILINE)
    return stated and stated[1]
