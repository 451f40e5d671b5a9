"""How uvicorn is to run the service."""

import os
from typing import Any

from autotune_service.connections import KEEP_ALIVE_S, GuardedProtocol
from autotune_service.settings import Settings


def options(settings: Settings) -> dict[str, Any]:
    """For ``uvicorn.run`` and ``uvicorn.Config``. uvicorn would believe the ``X-Forwarded-For`` of
    whoever calls from the loopback address: here only what ``FORWARDED_ALLOW_IPS`` names is."""
    believed = os.environ.get("FORWARDED_ALLOW_IPS", "")
    return {
        "host": settings.host,
        "port": settings.port,
        "http": GuardedProtocol,
        "ws": "none",
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": settings.drain_s,
        "proxy_headers": bool(believed),
        "forwarded_allow_ips": believed,
        "access_log": False,
        "server_header": False,
    }
