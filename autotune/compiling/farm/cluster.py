"""Ray: its nodes, and the actors on them. No other module names it."""

import contextlib
import os
import pickle
import signal
import socket
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, TypeVar

from autotune.compiling.farm.slot import CompilerSlot, node_facts
from autotune.compiling.process import CompilerInterruptedError
from autotune.domain.codec import from_data
from autotune.domain.errors import CompilerUnavailableError
from autotune.domain.key import Toolchain

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
        self._asked: Any = None
        self._ready = self.look()

    def look(self) -> Future[None]:
        """Answers, after what other drivers have asked, where the actor is there."""
        future: Future[None] = self._actor.ready.remote().future()
        return future

    def is_there(self) -> bool:
        """Also while it is busy for another driver. Raises ``SlotLostError``."""
        if self._ready.done():
            answer_of(self._ready)
        from ray.core.generated.gcs_pb2 import ActorTableData

        alive = int(ActorTableData.ALIVE)
        return self._ready.done() or self._actor._get_local_state() == alive

    def ask(self, *asked: Any) -> Future[bytes]:
        """``CompilerSlot.ask``; ``answer_of`` gives the pickled answer."""
        self._asked = self._actor.ask_packed.remote(pickle.dumps(asked))
        future: Future[bytes] = self._asked.future()
        return future

    def leave(self, driver: str) -> Future[None]:
        """Give up what the driver asked, and its compiler there; where another driver's question
        runs, after that."""
        if self._asked:
            _ray().cancel(self._asked)
        future: Future[None] = self._actor.leave.remote(driver).future()
        return future

    def discard(self) -> None:
        """One that was never ready would wait for its place for ever."""
        _ray().kill(self._actor)


class RayCluster:
    """A cluster that runs already, until ``close``. ``driver`` names this process to its actors.
    Raises ``CompilerUnavailableError`` with a sentence where there is none, or Ray is not
    installed."""

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
        self.driver = uuid.uuid4().hex
        with _answering():
            ray.experimental.internal_kv._internal_kv_put(self.driver, "", namespace=_NAMESPACE)

    def nodes(self) -> dict[str, Node]:
        """Those that are alive. Raises ``CompilerUnavailableError`` where the head is gone."""
        with _answering():
            listed = _ray().nodes()
        return {
            node["NodeID"]: Node(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                cpus=int(node["Resources"].get("CPU", 0)),
                memory_bytes=int(node["Resources"].get("memory", 0)),
            )
            for node in listed
            if node["Alive"]
        }

    def facts(self, node_ids: list[str]) -> dict[str, NodeFacts]:
        """Of nodes that answer in time."""
        ray = _ray()
        asked = {
            ray.remote(node_facts)
            .options(**_only_on(node_id), num_cpus=0, max_retries=0)
            .remote(): node_id
            for node_id in node_ids
        }
        with _answering():
            done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_FACTS_S)
        known = {asked[answer]: _facts(answer) for answer in done}
        return {answer: facts for answer, facts in known.items() if facts}

    def slot(
        self, node: Node, number: int, name: str, memory_bytes: int, worker: str | None
    ) -> RaySlot:
        """The one of this name, which is started where it is not there yet."""
        # a concurrency group for ``leave`` would cost each busy actor 4.6 ms of every second
        actor = _ray().remote(CompilerSlot)
        options = {"num_cpus": 1, "memory": memory_bytes, "name": name, **_only_on(node.id)}
        options["enable_task_events"] = False  # the head keeps no list of what was asked
        with _answering():
            started = actor.options(**options, get_if_exists=True, lifetime="detached")
            return RaySlot(node, number, started.remote(worker, _has_left, _is_given_up))

    def leave(self) -> None:
        """What this driver has asked, and what waits yet, is given up."""
        ray = _ray()
        head = ray.experimental.internal_kv.internal_kv_get_gcs_client()
        with contextlib.suppress(ray.exceptions.RayError):  # the head is gone
            head.internal_kv_del(self.driver.encode(), False, _NAMESPACE.encode(), timeout=_REACH_S)

    def close(self) -> None:
        _ray().shutdown()


def answer_of(future: Future[T]) -> T:
    """Raises ``SlotLostError``, or ``CompilerInterruptedError`` where this driver has left the
    slot. What the slot itself raises is a bug, and goes up."""
    exceptions = _ray().exceptions
    try:
        return future.result()
    except exceptions.RayTaskError:
        raise
    except (CancelledError, exceptions.TaskCancelledError) as error:
        raise CompilerInterruptedError from error
    except exceptions.RayError as error:
        raise SlotLostError(str(error).splitlines()[0]) from error


def _has_left(driver: str) -> bool:
    """Not where the head does not answer."""
    ray = _ray()
    with contextlib.suppress(ray.exceptions.RayError):
        return not ray.experimental.internal_kv._internal_kv_exists(driver, namespace=_NAMESPACE)
    return False


def _is_given_up() -> bool:
    """Whether the driver has cancelled what this actor does just now."""
    return bool(_ray().get_runtime_context().is_canceled())


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
        from autotune.compiling.environments.packages import pip_install

        raise CompilerUnavailableError(
            f"Ray is not installed here: {pip_install('ray')}"
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
