"""Why a node is not used, and what is said where there is no cluster."""

import socket
import sys

import pytest

from autotune.compiling.farm.cluster import NodeFacts, RayCluster
from autotune.compiling.farm.slots import unusable, wanted_toolchain
from autotune.domain.errors import CompilerUnavailableError
from autotune.domain.key import Toolchain, installed_toolchain

OLD = Toolchain(jax="0.9.2", jaxlib="0.9.2", libtpu="0.0.30")
NEW = Toolchain(jax="0.12.0.1", jaxlib="0.12.0", libtpu="0.0.50")


@pytest.mark.parametrize(
    ("version", "machine", "toolchain", "said"),
    [
        (None, "", None, "no pallas-autotune 1.2"),
        ("1.1", "x86_64", NEW, "pallas-autotune 1.1, not 1.2"),
        ("1.2", "aarch64", NEW, "is aarch64"),
        ("1.2", "x86_64", None, "no JAX with libtpu"),
        ("1.2", "x86_64", OLD, "has jax 0.9.2"),
        ("1.2", "x86_64", NEW, ""),
    ],
)
def test_a_node_is_used_or_says_why_not(version, machine, toolchain, said):
    facts = NodeFacts(version=version, machine=machine, toolchain=toolchain)
    refused = unusable(facts, NEW, "1.2")
    assert said in refused and bool(refused) == bool(said)


def test_the_toolchain_is_the_one_that_is_named_else_that_of_most_nodes():
    facts = [NodeFacts(version="1", toolchain=one) for one in (OLD, OLD, NEW, None)]
    assert wanted_toolchain(None, facts) == OLD
    assert wanted_toolchain("0.12", facts) == NEW
    with pytest.raises(CompilerUnavailableError, match=r"no node .* has jax 0\.1:"):
        wanted_toolchain("0.1", facts)
    own = installed_toolchain()
    assert wanted_toolchain(None, [*facts, NodeFacts(version="1", toolchain=own)]) == own
    assert wanted_toolchain(None, []) is None


def test_ray_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CompilerUnavailableError, match=r"pallas-autotune\[ray\]"):
        RayCluster("auto")


@pytest.mark.slow
def test_a_cluster_that_cannot_be_reached_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(CompilerUnavailableError, match="Connection refused"):
            RayCluster(f"127.0.0.1:{taken.getsockname()[1]}")
