"""Sentences about the queue."""

from autotune.domain.job import Ending, Request

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
