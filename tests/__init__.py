"""Tests. They mirror the rooms of the code: what ``autotune/searching/loop.py`` promises is tested
in ``tests/searching/test_loop.py``, the store in ``tests/db``, the routes and pages in
``tests/service``.

Beside the rooms:

- ``ports``: the contract of each port, one class of tests that every implementation inherits.
- ``e2e``: installed commands with the real compiler, from the first candidate to the record;
  faulty kernels and killed searches too.
- ``packaging``: the wheel and the source distribution, installed beside others.
- ``docker``: the images, and what runs around them.
- ``samples``: values and kernels to test with. ``recorded``: what real compilers have written.
- ``fakes``: hand-written stand-ins for the ports and for the processes behind them.
- ``servers``: the real thing, started for a test: PostgreSQL, a service, an installed command.
- ``load``: load, faults and kills, and the checks afterwards; the benchmarks use them too.

Only files called ``test_*.py`` hold tests; what several of them share is in ``samples``, ``fakes``,
``servers``, ``load``, or a fixture of the folder's ``conftest.py``. What needs the real TPU
compiler, a database server, a browser or many seconds is marked ``slow``.
"""
