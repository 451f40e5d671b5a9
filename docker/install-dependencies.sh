#!/bin/sh
# install-dependencies.sh VENV LOCK: a new virtual environment that holds what the lock names.
# Only wheels, with their hashes: the image has no compiler, and nothing downloaded runs here.
set -eu
python3 -m venv "$1"
"$1/bin/pip" install --quiet --require-hashes --only-binary :all: -r "$2"
