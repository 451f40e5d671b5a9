"""Ray clusters on this machine: a head that compiles nothing, and nodes that share its cores."""

from pathlib import Path

import pytest

from autotune.domain.problem import Problem

SLEEPING = Path(__file__).parents[2] / "fakes" / "worker.py"
PROBLEM = Problem(dims=(("n", 8),), dtype="float32")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Its nodes import what is installed, not what lies in the current folder."""
    from ray.cluster_utils import Cluster

    monkeypatch.chdir(tmp_path)
    made = Cluster(head_node_args={"num_cpus": 0, "include_dashboard": False}, initialize_head=True)
    yield made
    made.shutdown()


def add_nodes(cluster, *slots, **more):
    nodes = [
        cluster.add_node(num_cpus=count, memory=count * 8 << 30, wait=False, **more)
        for count in slots
    ]
    cluster.wait_for_nodes()
    return nodes
