"""``autotune search`` and what can be done with its result, with the real TPU compiler."""

import json

import pytest

from tests.servers.commands import autotune, autotune_here

SEARCH = ("search", "matmul", "--shape", "m=512,k=512,n=512", "--chip", "v5e", "--full")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A folder with a database after one search of 6 trials with two compilers, and what it
    printed."""
    folder = tmp_path_factory.mktemp("searched")
    two = {"AUTOTUNE_COMPILERS": "2"}
    done = autotune(*SEARCH, "--trials", "6", "--json", cwd=folder, env=two)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_a_search_publishes_a_verified_winner(searched):
    _, report = searched
    record = report["record"]
    assert record["verified"] and not record["is_default"]
    assert record["estimate"]["time_us"] < 0.97 * record["default"]["time_us"]
    assert record["config"]["dimension_semantics"][-1] in ("parallel", "arbitrary")
    # 2 * 512^3 operations at 197 TFLOP/s take 1.36 us: no estimate can be below
    assert record["estimate"]["time_us"] > 1.36
    # three bf16 arrays of 512x512 through 820 GB/s of HBM take longer than that
    assert record["baseline"]["time_us"] == pytest.approx(3 * 512**2 * 2 / 820e9 * 1e6, rel=0.02)
    assert report["default"]["number"] == 0
    assert sum(report["outcomes"].values()) == 6


def test_the_same_command_with_more_trials_compiles_only_those(searched):
    folder, first = searched
    more = json.loads(autotune_here(*SEARCH, "--trials", "7", "--json", cwd=folder).stdout)
    assert (first["reused"], more["reused"], sum(more["outcomes"].values())) == (0, 6, 7)
    history = json.loads(autotune_here("history", "--trials", "--json", cwd=folder).stdout)
    configs = [json.dumps(t["config"], sort_keys=True) for t in history[0]["trials"]]
    assert len(configs) == len(set(configs)) == 7
    assert [t["number"] for t in history[0]["trials"]] == list(range(7))


def test_a_timeout_stops_and_keeps(tmp_path):
    done = autotune_here(*SEARCH, "--timeout", "0", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["stopped_by"] == "timeout"
    assert sum(report["outcomes"].values()) == 1  # the default is always tried
    assert report["record"]["is_default"]
