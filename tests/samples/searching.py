"""One search to its end, without a gate or a record."""

from autotune.searching.loop import open_search
from autotune.searching.run import run_searches
from autotune.searching.subject import SearchObserver


def run_search(compilers, store, subject, space, limits, observer=None, **options):
    """``options``: as ``open_search`` has them."""
    observer = observer or SearchObserver()
    search = open_search(compilers, store, subject, space, limits, observer, **options)
    run_searches([search], compilers.size, limits.timeout_s)
    return search.result()
