"""What all that implements a port here has: the database's transactions, and a clock."""

from collections.abc import Callable
from datetime import datetime

from autotune_db.transaction import Transactions


class Adapter:
    """Every method of a subclass is one transaction, committed before it returns.

    "Newest" and "last" mean saved last: clocks of several machines do not decide.
    """

    def __init__(self, work: Transactions, clock: Callable[[], datetime]) -> None:
        self._work = work
        self._clock = clock
