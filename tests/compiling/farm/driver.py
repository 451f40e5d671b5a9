"""Searches all of the space of the samples on a cluster: a driver that a test can kill.

python driver.py ADDRESS DATABASE
"""

import sys
from dataclasses import replace

from autotune.compiling.farm.pool import RayPool
from autotune.declaring.discovery import find_kernel
from autotune.estimating.space import Space
from autotune.searching.subject import SearchLimits, SearchObserver
from autotune_db import open_store
from tests.compiling.farm.conftest import SLEEPING
from tests.publishing.test_publish import SUBJECT
from tests.samples import candidates
from tests.samples.searching import run_search


class Saying(SearchObserver):
    def trial_done(self, _):
        print("trial", flush=True)


if __name__ == "__main__":
    space = candidates.space()
    with (
        RayPool(sys.argv[1], worker=SLEEPING) as pool,
        open_store(sys.argv[2], create=True) as store,
    ):
        result = run_search(
            pool,
            store,
            replace(SUBJECT, ref=find_kernel("vector_add")),
            Space(candidates=space, default=space[0].config, default_verdict=None),
            SearchLimits(trials=len(space)),
            Saying(),
            method="random",
        )
    print(len(result.trials), "trials")
