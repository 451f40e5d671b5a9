"""Ray: its nodes, and the actors on them. No other module names it."""

import contextlib
import os
import pickle
import signal
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from autotune.domain.codec import from_data
from autotune.domain.toolchain import Toolchain
from autotune.errors import CompilerUnavailableError
from autotune.farm.slot import CompilerSlot, node_facts

T = TypeVar("T")

_REACH_S = 5.0
_FACTS_S = 60.0
_NAMESPACE = "autotune"


class SlotLostError(Exception):
    """The actor, or its node, is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """``id`` is Ray's; ``memory_bytes``: what Ray may give away there."""

    id: str
    address: str
    cpus: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node says of itself. ``version``: of this package, None where it cannot be imported;
    ``toolchain``: None without JAX or libtpu; ``fault``: what it raised instead."""

    version: str | None
    machine: str = ""
    toolchain: Toolchain | None = None
    fault: str = ""


class RaySlot:
    """An actor of a node, which the drivers of the cluster share by its name."""

    def __init__(self, node: Node, number: int, actor: Any) -> None:
        self.node, self.number, self._actor = node, number, actor
        self.ready = self.look()

    def look(self) -> Future[None]:
        """Answers where the actor is there, also while it is busy for another driver."""
        asked = self._actor.ready.options(concurrency_group="control").remote()
        future: Future[None] = asked.future()
        return future

    def ask(self, *asked: Any) -> Future[bytes]:
        """``CompilerSlot.ask``; ``answer_of`` gives the pickled answer."""
        future: Future[bytes] = self._actor.ask_packed.remote(pickle.dumps(asked)).future()
        return future

    def leave(self, driver: str) -> Future[None]:
        """Give up what the driver asked, and its compiler there."""
        left = self._actor.leave.options(concurrency_group="control").remote(driver)
        future: Future[None] = left.future()
        return future

    def discard(self) -> None:
        """One that was never ready would wait for its place for ever."""
        _ray().kill(self._actor)


class RayCluster:
    """A cluster that runs already, until ``close``. Raises ``CompilerUnavailableError`` with a
    sentence where there is none, or Ray is not installed."""

    def __init__(self, address: str) -> None:
        ray = _ray()
        _reach(address)
        try:
            with _signals_kept():
                ray.init(
                    address=address,
                    namespace=_NAMESPACE,
                    logging_level="ERROR",
                    log_to_driver=False,
                )
        except ConnectionError as error:
            raise CompilerUnavailableError(
                f"no Ray cluster answers at {address!r}: start one with `ray start --head`, or "
                "give its address, HOST:6379"
            ) from error
        except Exception as error:  # whatever Ray calls it; another version is a RuntimeError
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise CompilerUnavailableError(
                f"the Ray cluster at {address!r} cannot be used with Ray {ray.__version__}: "
                + " ".join(lines)
            ) from error

    def nodes(self) -> dict[str, Node]:
        """Those that are alive. Raises ``CompilerUnavailableError`` where the head is gone."""
        with _answering():
            found = _ray().nodes()
        return {
            one["NodeID"]: Node(
                id=one["NodeID"],
                address=one["NodeManagerAddress"],
                cpus=int(one["Resources"].get("CPU", 0)),
                memory_bytes=int(one["Resources"].get("memory", 0)),
            )
            for one in found
            if one["Alive"]
        }

    def facts(self, node_ids: list[str]) -> dict[str, NodeFacts]:
        """Of nodes that answer in time."""
        ray = _ray()
        asked = {
            ray.remote(node_facts).options(**_only_on(one), num_cpus=0, max_retries=0).remote(): one
            for one in node_ids
        }
        with _answering():
            done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_FACTS_S)
        found = {asked[one]: _facts(one) for one in done}
        return {one: facts for one, facts in found.items() if facts}

    def slot(
        self, node: Node, number: int, name: str, memory_bytes: int, worker: str | None
    ) -> RaySlot:
        """The one of this name, which is started where it is not there yet."""
        actor = _ray().remote(concurrency_groups={"control": 1})(CompilerSlot)
        options = {"num_cpus": 1, "memory": memory_bytes, "name": name, **_only_on(node.id)}
        options["enable_task_events"] = False  # the head keeps no list of what was asked
        with _answering():
            started = actor.options(**options, get_if_exists=True, lifetime="detached")
            return RaySlot(node, number, started.remote(worker))

    def close(self) -> None:
        _ray().shutdown()


def answer_of(future: Future[T]) -> T:
    """Raises ``SlotLostError``. What the slot itself raises is a bug, and goes up."""
    exceptions = _ray().exceptions
    try:
        return future.result()
    except exceptions.RayTaskError:
        raise
    except exceptions.RayError as error:
        raise SlotLostError(str(error).splitlines()[0]) from error


def _facts(asked: Any) -> NodeFacts | None:
    ray = _ray()
    try:
        return from_data(NodeFacts, ray.get(asked))
    except ray.exceptions.RayTaskError as error:
        if "ModuleNotFoundError" in str(error):
            return NodeFacts(version=None)
        return NodeFacts(version=None, fault=str(error).strip().splitlines()[-1])
    except ray.exceptions.RayError:
        return None


def _only_on(node_id: str) -> Mapping[str, Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """What Ray itself cannot do is one sentence."""
    try:
        yield
    except _ray().exceptions.RayError as error:
        line = str(error).strip().splitlines()[0]
        raise CompilerUnavailableError(f"the Ray cluster does not answer: {line}") from error


def _reach(address: str) -> None:
    """Ray itself looks for a host that refuses for many minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), _REACH_S).close()
    except OSError as error:
        raise CompilerUnavailableError(
            f"no Ray cluster answers at {address} ({error.strerror or error}): is it the head's "
            "address, HOST:6379, and can it be reached from here?"
        ) from error


def _ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # it warns otherwise
    try:
        import ray
    except ImportError as error:
        raise CompilerUnavailableError(
            "Ray is not installed here: install pallas-autotune[ray]"
        ) from error
    return ray


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray puts its own handler of SIGTERM in the place of ours."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # not the main thread: nothing was changed
            signal.signal(signal.SIGTERM, before)
