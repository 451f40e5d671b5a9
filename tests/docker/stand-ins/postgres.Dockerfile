# In the place of the image `postgres`, where no registry can be reached: Debian's PostgreSQL, and of
# the image's start what docker/compose.yaml uses.
FROM docker.io/library/python:3.13-slim-trixie
RUN apt-get update -qq && apt-get install -qq --no-install-recommends postgresql >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/*
COPY postgres-start.sh /
ENTRYPOINT ["/postgres-start.sh"]
