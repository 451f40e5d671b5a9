"""What the words of the pages mean, and sentences about the queue."""

from autotune.domain.job import Ending, Request

TERMS: dict[str, str] = {
    "snapshot": "An immutable, numbered set of records: who asks for the same number gets the same "
    "answers for ever.",
    "record": "The published answer for a kernel, problem, chip and toolchain, with its evidence.",
    "problem": "One concrete use of a kernel: its sizes, its element type and its options.",
    "config": "One point of a kernel's space: block sizes, the order of the grid, which grid axes "
    "are parallel, and the VMEM limit.",
    "toolchain": "The versions of jax, jaxlib and libtpu, and the compiler's options if any.",
    "trial": "One config evaluated for one problem: compiled, and its time estimated, or why not.",
    "coverage": "How many of the problems that were searched have a published record.",
    "gain": "How many times as fast as the kernel's own default; over several problems the "
    "geometric mean, as estimated unless it was measured.",
    "can gain": "The most that other configs can save in a step of the model: what is served takes "
    "that much longer than the arithmetic and the traffic of the problem.",
    "plain XLA": "What XLA makes of the same operation without a kernel; its time is an estimate "
    "with a range, and a lower bound that nothing can beat.",
    "estimated": "From the schedule that Google's TPU compiler makes, without a TPU; ± is the "
    "error bar.",
    "verified": "Run in Pallas TPU interpret mode against a reference on a smaller problem of the "
    "same structure: two cores, several orders, race detection.",
    "VMEM": "The memory on the chip that blocks are copied to before the core works on them.",
    "miss": "A question without an exact answer: a nearby config or the default was given instead.",
    "stale": "Tuned for an older source of its kernel: what is asked for now is another key.",
    "broken": "A check has compiled the config with another toolchain: there it does not work.",
    "semantics": "For each grid axis in order: P, its steps may run in parallel on two cores; A, "
    "they run one after another (arbitrary).",
    "effect": "How the time changes when one part of the config is another, and nothing else: from "
    "the trials that differ in this part alone from what is served. Three of four such factors lie "
    "in their interval.",
    "pin": "A pinned record is served for its problem, whatever is published later.",
    "job": "A request for a search, which a worker takes from the queue.",
}


ENDINGS = {
    Ending.DIED: "its worker was not heard of again",
    Ending.LATE: "its lease ended before its worker was done; that worker has stopped",
    Ending.FAILED: "its worker could not go on",
}


def why_waiting(asked: Request, workers: int) -> str:
    """What a queued job waits for. ``workers``: how many are at work on other jobs."""
    needs = f"a worker with {asked.kernel}"
    if asked.fingerprint:
        needs += f" of the source {asked.fingerprint}"
    if asked.toolchain:
        needs += f" and {asked.toolchain}"
    if not workers:
        return f"No worker is at work. It needs {needs}: autotune worker"
    busy = "1 worker is" if workers == 1 else f"{workers} workers are"
    return f"{busy} busy with other jobs. It needs {needs}."
