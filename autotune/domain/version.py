"""The version of this product, and those of what is installed.

The package metadata and ``make release`` read it here. A test holds CITATION.cff and the first
heading of CHANGELOG.md to it.
"""

import re

NAME = "pallas-autotune"
VERSION = "0.2.0"


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
