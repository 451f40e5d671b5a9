# A worker that searches: JAX, libtpu and Optuna, no TPU. It has no port to ask for its health: it
# touches a file whenever its queue has answered.
#   docker build -f docker/worker.Dockerfile --build-arg REVISION=$(git rev-parse HEAD) -t pallas-autotune-worker .
# Python 3.13 is the newest one that the tests run on, and 3.12 or newer has the newest JAX.
ARG BASE=python:3.13-slim-trixie
FROM ${BASE} AS base

FROM base AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /data
WORKDIR /source
COPY docker/install-dependencies.sh docker/worker.lock docker/
RUN ["docker/install-dependencies.sh", "/opt/autotune", "docker/worker.lock"]
COPY docker/install-package.sh docker/
COPY pyproject.toml README.md ./
COPY autotune autotune
COPY db db
COPY kernels kernels
COPY service service
RUN ["docker/install-package.sh", "/opt/autotune"]

FROM base
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pallas-autotune worker" \
      org.opencontainers.image.description="Searches block shapes of JAX Pallas TPU kernels, with no TPU" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /opt/autotune /opt/autotune
COPY --from=build --chown=10001:10001 /data /data
ENV PATH=/opt/autotune/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HOME=/tmp XDG_DATA_HOME=/data AUTOTUNE_WORKER_ALIVE=/tmp/worker-alive
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
# Every two seconds while it waits, four times in a lease while it works, but not while it reads the
# kernels at its start, nor while it sends what it found.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5m --retries=3 \
    CMD ["python", "-I", "-S", "-c", "import os, sys, time; sys.exit(time.time() - os.stat('/tmp/worker-alive').st_mtime > 120)"]
ENTRYPOINT ["autotune"]
CMD ["worker"]
