# In the place of the image `nginx`, where no registry can be reached: Debian's.
FROM docker.io/library/python:3.13-slim-trixie
RUN apt-get update -qq && apt-get install -qq --no-install-recommends nginx-light >/dev/null \
    && rm -rf /var/lib/apt/lists/*
