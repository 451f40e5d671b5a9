"""One search to its end, without a gate or a record."""

from typing import Any

from autotune.searching.loop import open_search
from autotune.searching.run import run_searches
from autotune.searching.subject import SearchLimits, SearchObserver, SearchResult


def run_search(
    compilers: Any,
    store: Any,
    subject: Any,
    space: Any,
    limits: SearchLimits,
    observer: SearchObserver | None = None,
    **options: Any,
) -> SearchResult:
    """``options``: as ``open_search`` has them."""
    observer = observer or SearchObserver()
    search = open_search(compilers, store, subject, space, limits, observer, **options)
    run_searches([search], compilers.size, limits.timeout_s)
    return search.result()
