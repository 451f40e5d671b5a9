"""What a search may leave behind: processes and folders that name its temporary folder."""

import time

import psutil


def processes(folder):
    """Command lines that name ``folder``: compilers, their guardians, what candidates started."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


def folders(folder):
    return [path.name for path in folder.glob("autotune-compiler-*")]


def wait_for_none(folder, limit_s):
    """What is still there after ``limit_s`` seconds, or the time until nothing was."""
    started = time.monotonic()
    while time.monotonic() - started < limit_s:
        if not processes(folder) and not folders(folder):
            break
        time.sleep(0.05)
    return processes(folder), folders(folder), time.monotonic() - started
