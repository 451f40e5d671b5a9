# A worker that searches: JAX, libtpu and Optuna, no TPU. It has no port to ask for its health: one
# that has died is started again, and its job goes to another.
#   docker build -f docker/worker.Dockerfile --build-arg REVISION=$(git rev-parse HEAD) -t pallas-autotune-worker .
# Python 3.13 is the newest one that the tests run on, and 3.12 or newer has the newest JAX.
FROM python:3.13-slim-trixie AS base

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
    HOME=/tmp XDG_DATA_HOME=/data
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
ENTRYPOINT ["autotune"]
CMD ["worker"]
