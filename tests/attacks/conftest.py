"""The service that is attacked: that of the other tests of the service."""

from tests.service.conftest import admin, database, service, store, writer

__all__ = ["admin", "database", "service", "store", "writer"]
