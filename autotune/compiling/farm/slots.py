"""Which slots of a cluster there are, and which are free."""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from threading import Condition, Event, Thread

from autotune.compiling.farm.cluster import Node, NodeFacts, RayCluster, RaySlot, SlotLostError
from autotune.compiling.process import CompilerInterruptedError
from autotune.domain.errors import CompilerUnavailableError, KernelImportError
from autotune.domain.key import Toolchain, installed_toolchain
from autotune.domain.version import VERSION

_LOOK_S = 3.0
_OPEN_S = 120.0  # sixty-four actors on two cores take thirty
_GRACE_S = 3.0  # for the next one, once there is one
_LEAVE_S = 5.0
_AGAIN_S = 30.0  # what a node lacks may pass
_PATIENCE_S = 60.0  # without any node


class Slots:
    """Slots by node and number: one for each core and each ``memory_bytes``. A thread looks for
    nodes that come and go until ``close``."""

    def __init__(
        self,
        cluster: RayCluster,
        jax: str | None,
        memory_bytes: int,
        announce: Callable[[str], None],
        worker: str | None,
    ) -> None:
        self.driver = cluster.driver
        self._cluster, self._jax, self._memory_bytes = cluster, jax, memory_bytes
        self._announce, self._worker = announce, worker
        self._toolchain: Toolchain | None = None
        self._changed = Condition()
        self._nodes: dict[str, Node] = {}
        self._refused: dict[str, float] = {}
        self._leaving: list[Future[None]] = []
        self._opening: dict[tuple[str, int], RaySlot] = {}
        self._slots: dict[tuple[str, int], RaySlot] = {}
        self._free: list[RaySlot] = []
        self._closed = Event()
        self._watcher = Thread(target=self._watch, name="farm", daemon=True)
        self.size = 0

    def open(self) -> None:
        """Wait for the slots of all nodes that can be used; for those that are late only until one
        is there. Raises ``CompilerUnavailableError``."""
        self._look()
        if not self._nodes:
            raise CompilerUnavailableError(
                "no node of the Ray cluster can compile: start nodes with "
                "pallas-autotune[search,ray]"
            )
        there, since = 0, time.monotonic()
        while self._opening and time.monotonic() - since < (_GRACE_S if there else _OPEN_S):
            time.sleep(0.05)
            self._take_in()
            if len(self._slots) > there:
                there, since = len(self._slots), time.monotonic()
        if not self._slots:
            raise CompilerUnavailableError(
                "the slots of the Ray cluster are not free: others hold its cores or its memory; "
                "wait for them, or start more nodes"
            )
        self.size = len(self._slots) + len(self._opening)
        self._watcher.start()

    def take(self, avoid: Collection[str], lacking: Mapping[str, str]) -> RaySlot:
        """One that is free, of another node than those to ``avoid`` where there is one. Raises
        ``CompilerUnavailableError`` where no node is left, ``KernelImportError`` where all that are
        left are ``lacking`` the kernel, each with what it said; ``CompilerInterruptedError``."""
        since = time.monotonic()
        with self._changed:
            while not self._closed.is_set():
                able = {slot.node.id for slot in self._slots.values()} - lacking.keys()
                wanted = able.difference(avoid) or able
                for slot in reversed(self._free):  # it has just traced what it is to compile
                    if slot.node.id in wanted:
                        self._free.remove(slot)
                        return slot
                since = time.monotonic() if able else since
                is_late = time.monotonic() - since > _PATIENCE_S
                if self._slots and not able and (is_late or self._nodes.keys() <= lacking.keys()):
                    raise KernelImportError(
                        "no node of the Ray cluster can be asked about this kernel: "
                        + "; ".join(sorted({*lacking.values()}))
                    )
                if is_late:
                    raise CompilerUnavailableError(
                        "no node of the Ray cluster is left: what is finished is kept, start "
                        "nodes, and the same command goes on"
                    )
                self._changed.wait(None if able else 1.0)
            raise CompilerInterruptedError

    def give(self, slot: RaySlot) -> None:
        """It has answered."""
        with self._changed:
            if self._slots.get((slot.node.id, slot.number)) is slot:
                self._free.append(slot)
                self._changed.notify_all()
            else:  # its node was refused, perhaps before it was asked
                self._leaving.append(slot.leave(self.driver))

    def lose(self, slot: RaySlot) -> None:
        """It did not; it is started again if its node is there."""
        with self._changed:
            if self._slots.get((slot.node.id, slot.number)) is slot:
                del self._slots[slot.node.id, slot.number]
            self._changed.notify_all()

    def refuse(self, node: Node, reason: str) -> None:
        """Use none of its slots for a while, the second time for good."""
        now = time.monotonic()
        with self._changed:
            new = node.id not in self._refused
            if not new and now - self._refused[node.id] < _AGAIN_S:
                return  # another thread has met the same
            for slot in self._slots.values():
                if slot.node.id == node.id:
                    self._leaving.append(slot.leave(self.driver))
            self._forget(node.id)
            self._refused[node.id] = now if new else math.inf
        if new:
            self._announce(f"node {node.address} is not used: {reason}")

    def interrupt(self) -> None:
        """Nobody waits any longer."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Give back the compilers on all nodes."""
        self.interrupt()
        if self._watcher.is_alive():
            self._watcher.join(_LEAVE_S)
        self._cluster.leave()
        with self._changed:
            late = [*self._opening.values()]
            self._leaving += [slot.leave(self.driver) for slot in (*self._slots.values(), *late)]
        wait(self._leaving, _LEAVE_S)
        for slot in late:
            with contextlib.suppress(SlotLostError):
                if not slot.is_there():  # else another driver may be using it
                    slot.discard()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_S):
            with contextlib.suppress(CompilerUnavailableError):  # the next look may find it
                self._take_in()
                self._look()

    def _look(self) -> None:
        """Take nodes in that are new, let go of those that are gone, start what is missing."""
        nodes, now = self._cluster.nodes(), time.monotonic()
        new = [
            node
            for node in nodes.values()
            if node.cpus
            and node.id not in self._nodes
            and now - self._refused.get(node.id, -_AGAIN_S) >= _AGAIN_S
        ]
        if new:
            self._judge(new, self._cluster.facts([node.id for node in new]))
        with self._changed:
            for gone in [node for node in self._nodes if node not in nodes]:
                self._forget(gone)
            for node in self._nodes.values():
                for number in range(self._capacity(node)):
                    place = node.id, number
                    if place not in self._slots and place not in self._opening:
                        self._opening[place] = self._start(node, number)

    def _judge(self, nodes: list[Node], facts: dict[str, NodeFacts]) -> None:
        if self._toolchain is None:
            self._toolchain = wanted_toolchain(self._jax, list(facts.values()))
        for node in nodes:
            if node.id not in facts:
                continue  # it is asked again
            reason = unusable(facts[node.id], self._toolchain)
            if not reason and not self._capacity(node):
                reason = (
                    f"it has {node.memory_bytes / 2**30:.1f} GiB for Ray and a compiler may take "
                    f"{self._memory_bytes / 2**30:.1f}: lower --candidate-memory"
                )
            if reason:
                self.refuse(node, reason)
            else:
                self._nodes[node.id] = node

    def _capacity(self, node: Node) -> int:
        return min(node.cpus, node.memory_bytes // self._memory_bytes)

    def _start(self, node: Node, number: int) -> RaySlot:
        name = f"{VERSION} {node.id} {number} {self._memory_bytes}"
        return self._cluster.slot(node, number, name, self._memory_bytes, self._worker)

    def _take_in(self) -> None:
        with self._changed:
            for place, slot in list(self._opening.items()):
                try:
                    if not slot.is_there():
                        continue
                    self._slots[place] = slot
                    self._free.append(slot)
                except SlotLostError:
                    pass  # the next look starts it again
                del self._opening[place]
            self._changed.notify_all()

    def _forget(self, node_id: str) -> None:
        self._nodes.pop(node_id, None)
        for slots in (self._slots, self._opening):
            for place in [key for key in slots if key[0] == node_id]:
                del slots[place]
        self._free = [slot for slot in self._free if slot.node.id != node_id]
        self._changed.notify_all()


def wanted_toolchain(jax: str | None, facts: list[NodeFacts]) -> Toolchain | None:
    """The toolchain that is compiled with: of the version that is named, else this interpreter's
    where a node has it, else what most nodes have."""
    known = [fact.toolchain for fact in facts if fact.toolchain]
    if jax is not None:
        known = [
            toolchain
            for toolchain in known
            if toolchain.jax == jax or toolchain.jax.startswith(f"{jax}.")
        ]
        if not known:
            raise CompilerUnavailableError(
                f"no node of the Ray cluster has jax {jax}: start one, or name another version"
            )
    installed = installed_toolchain()
    if installed in known:
        return installed
    return max(known, key=known.count) if known else None


def unusable(node: NodeFacts, wanted: Toolchain | None, version: str = VERSION) -> str:
    """Why a node cannot compile with this version for the toolchain; empty where it can."""
    if node.fault:
        return node.fault
    if node.version is None:
        return f"it has no pallas-autotune {version}: install it in the Python of its Ray"
    if node.version != version:
        return f"it has pallas-autotune {node.version}, not {version}: install that there"
    if node.machine.lower() not in ("x86_64", "amd64"):
        return f"it is {node.machine}, and the TPU compiler is for x86_64 only"
    if node.toolchain is None:
        return "it has no JAX with libtpu: install pallas-autotune[search] there"
    return "" if node.toolchain == wanted else f"it has {node.toolchain}, not {wanted}"
