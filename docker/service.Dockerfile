# The HTTP service, and the migrations. No JAX, no pip, nothing to write to but /data and /tmp.
#   docker build -f docker/service.Dockerfile --build-arg REVISION=$(git rev-parse HEAD) -t pallas-autotune-service .
# Python 3.13 is the newest one that the tests run on.
ARG BASE=python:3.13-slim-trixie
FROM ${BASE} AS base

FROM base AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /data
WORKDIR /source
COPY docker/install-dependencies.sh docker/service.lock docker/
RUN ["docker/install-dependencies.sh", "/opt/autotune", "docker/service.lock"]
COPY docker/install-package.sh docker/
COPY pyproject.toml README.md ./
COPY autotune autotune
COPY db db
COPY kernels kernels
COPY service service
RUN ["docker/install-package.sh", "/opt/autotune"]

FROM base
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pallas-autotune service" \
      org.opencontainers.image.description="Tuned block shapes of JAX Pallas TPU kernels over HTTP" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /opt/autotune /opt/autotune
COPY --from=build --chown=10001:10001 /data /data
ENV PATH=/opt/autotune/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HOME=/tmp XDG_DATA_HOME=/data
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8700
# No urllib: it would ask a proxy that the environment names.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-I", "-S", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8700, timeout=4); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["autotune"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8700"]
