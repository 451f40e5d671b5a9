"""What was asked for in vain becomes a workload: from the database, and from its service."""

from dataclasses import replace

from autotune.domain.workload import read_workload
from autotune_db import open_store
from tests.samples.records import record
from tests.servers.commands import autotune_here
from tests.servers.service import running

MANY = 120  # more than a page


def _wanted(number):
    key = record().key
    return replace(key, problem=key.problem.with_dims(m=128 * (number + 1)))


def test_misses_of_a_service_are_those_of_its_database(tmp_path):
    database = tmp_path / "test.db"
    with open_store(str(database), create=True) as store:
        store.save_misses({(_wanted(n), "default"): n + 1 for n in range(MANY)})
    of_database = autotune_here("collect", "--from-misses", cwd=tmp_path)
    assert of_database.returncode == 0, of_database.stderr
    assert sorted(p.weight for p in read_workload(of_database.stdout).problems) == list(
        range(1, MANY + 1)
    )
    with running(str(database)) as service:
        of_service = autotune_here("collect", "--from-misses", "--url", service.url, cwd=tmp_path)
    assert of_service.stdout == of_database.stdout
    gone = autotune_here("collect", "--from-misses", "--url", service.url, cwd=tmp_path)
    assert gone.returncode != 0
    assert f"the service at {service.url} cannot be used" in gone.stderr
