"""The application in a process that a server starts: all settings are in the environment."""

import multiprocessing
import os
import signal
import threading

from starlette.routing import Router

from autotune_service.app import create_app
from autotune_service.middleware.logs import set_up
from autotune_service.settings import from_environment


def app_of_process() -> Router:
    set_up()
    _end_with_parent()
    return create_app(None, from_environment())


def _end_with_parent() -> None:
    """Else what a killed server has started lives on, and holds its port."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
