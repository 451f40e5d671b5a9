"""``Compilers`` of a cluster: each question goes to a slot that is free."""

import hashlib
import json
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from autotune.compiling.client import Compiler
from autotune.compiling.farm.cluster import RayCluster, SlotLostError, answer_of
from autotune.compiling.farm.slots import Slots
from autotune.compiling.limits import CANDIDATE_LIMIT_S, DEFAULT_MEMORY_BYTES
from autotune.compiling.pool import PooledCompilers
from autotune.compiling.process import ChildDiedError, ChildTimedOutError, CompilerInterruptedError
from autotune.declaring.fingerprint import fingerprint
from autotune.declaring.sources import all_files
from autotune.domain.codec import from_data
from autotune.domain.compilers import CompilerQuestion, Underway
from autotune.domain.errors import CompilerUnavailableError, InvalidInputError
from autotune.domain.key import KernelRef

T = TypeVar("T")

_MOST_LOST = 3  # compilers, before it is the candidate's fault


class RayPool(PooledCompilers):
    """The compilers of a Ray cluster. ``jax``: the version that its nodes must have, else that of
    this interpreter, else the only one that there is. ``announce`` is told why a node is not used,
    from any thread.

    Leaves no compiler of its own behind its ``with``. Raises ``CompilerUnavailableError``.
    """

    def __init__(
        self,
        address: str,
        *,
        jax: str | None = None,
        limit_s: float = CANDIDATE_LIMIT_S,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        announce: Callable[[str], None] = lambda _: None,
        worker: Path | None = None,
        options: str = "",
    ) -> None:
        self._cluster = RayCluster(address)
        self._slots = Slots(
            self._cluster, jax, memory_bytes, announce, str(worker) if worker else None
        )
        try:
            self._slots.open()
        except BaseException:
            self._end()
            raise
        super().__init__(self._slots.size, options)
        self._process = FarmProcess(self._slots, memory_bytes)
        self._compiler = Compiler(self._process, limit_s=limit_s)

    def _answer(self, question: CompilerQuestion[T]) -> T:
        return self._compiler.ask(question)

    def _stop(self) -> None:
        self._process.interrupt()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._end()

    def _end(self) -> None:
        self._slots.close()
        self._cluster.close()


class FarmProcess:
    """What is asked as one child is asked, by as many threads as there are slots."""

    python, running = "the nodes' Python", True
    underway: Underway | None = None

    def __init__(self, slots: Slots, memory_bytes: int) -> None:
        self._slots, self._memory_bytes = slots, memory_bytes
        self._sources: dict[KernelRef, Mapping[str, Any] | None] = {}
        self._reading = Lock()
        self._lacking: dict[str, dict[str, str]] = {}  # by kernel, nodes and what they say
        self._interrupted, self._asked = False, set[Future[Any]]()

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """As ``CompilerProcess.ask``. What was under way on a slot that is lost is asked again, on
        another node where there is one."""
        sources = self._sources_of(request)
        lacking = self._lacking.setdefault(str(request.get("ref")), {})
        lost: list[str] = []
        while True:
            slot = self._slots.take(lost, lacking)
            has_it = False
            try:
                if lost:  # what has ended before, as slots do that rest, is not its fault
                    self._answer(slot.look())
                has_it = True
                asked = self._slots.driver, request, sources, limit_s, self._memory_bytes
                answer = pickle.loads(self._answer(slot.ask(*asked)))  # noqa: S301 - of our actor
            except CompilerInterruptedError:
                if self._interrupted:
                    raise
                continue  # its node was refused
            except SlotLostError as error:
                self._slots.lose(slot)
                lost += [slot.node.id] * has_it
                if len(lost) == _MOST_LOST:
                    nodes = f"{len(lost)} compilers on {len({*lost})} nodes"
                    raise ChildDiedError(f"{nodes} ended while they had it", str(error)) from error
                continue
            if "unusable" in answer:
                self._slots.refuse(slot.node, answer["unusable"])
                continue
            self._slots.give(slot)
            if "lacks" in answer:
                lacking[slot.node.id] = f"node {slot.node.address}: {answer['lacks']}"
            else:
                return read_answer(answer, request, sources)

    def _answer(self, asked: Future[T]) -> T:
        self._asked.add(asked)
        try:
            if self._interrupted:
                raise CompilerInterruptedError
            return answer_of(asked)
        finally:
            self._asked.discard(asked)

    def interrupt(self) -> None:
        self._interrupted = True
        for future in [*self._asked]:
            future.cancel()
        self._slots.interrupt()

    def stop(self) -> None:
        """A child that is to be stopped is stopped where it is."""

    def close(self) -> None:
        self.interrupt()

    def _sources_of(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Read once: all nodes have the same, and it is the one that is asked for."""
        if "ref" not in request:
            return None
        ref = from_data(KernelRef, request["ref"])
        with self._reading:
            if ref not in self._sources:
                self._sources[ref] = sources_of(ref)
            return self._sources[ref]


def sources_of(ref: KernelRef) -> Mapping[str, Any] | None:
    """None: the reference holds its source."""
    if ref.copy:
        raise InvalidInputError(
            "two revisions of a working tree are compared on this machine: leave out --ray"
        )
    if ref.source:
        return None
    if ref.module:
        return {"fingerprint": fingerprint(ref), "home": ref.root}
    home, files = all_files(Path(ref.path))
    content = {str(file.relative_to(home)): file.read_bytes() for file in files}
    return {
        "fingerprint": fingerprint(ref),
        "home": str(home),
        "files": content,
        "path": str(files[0].relative_to(home)),
        "digest": hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:16],
    }


def read_answer(
    answer: Mapping[str, Any], request: Mapping[str, Any], sources: Mapping[str, Any] | None
) -> dict[str, Any]:
    if "timed out" in answer:
        raise ChildTimedOutError(answer["timed out"])
    if "died" in answer:
        raise ChildDiedError(answer["died"], answer["log_tail"])
    if "interrupted" in answer:  # though we have not left
        raise CompilerUnavailableError(
            "the Ray cluster does not know this command any more, as when its head was started "
            "again: give the command again, what was finished is kept"
        )
    if answer.get("content"):
        Path(request["path"]).write_bytes(answer["content"])
    said: dict[str, Any] = answer["answer"]
    if sources and sources["home"]:  # messages name files
        there, here = (json.dumps(f"{home}/")[1:-1] for home in (answer["home"], sources["home"]))
        if there != here:
            said = json.loads(json.dumps(said).replace(there, here))
    return said
