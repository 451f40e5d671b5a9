# Everything runs in .venv, which the first target that needs it makes. Only Python 3.11+ and make
# are needed. PYTHON picks another interpreter, VENV another folder.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Compiled modules are kept, also where the surroundings say otherwise: some two hundred processes
# start in a run of the tests, and without them each takes four times as long to import JAX.
export PYTHONDONTWRITEBYTECODE =

# Tests that run side by side, one more than there are cores: a third of their time they wait, for a
# disk, for what hangs on purpose, for servers and a browser. Each may start a TPU compiler, which
# takes a core and a GB.
JOBS ?= 3
PYTEST := $(BIN)/python -m pytest -n $(JOBS)
# Files of slow tests stay whole: half a minute of searches may be what their tests share. They keep
# their order, in which tests/conftest.py puts the long ones first.
BY_FILE := --dist loadfile --no-loadscope-reorder

.PHONY: search test test-fast test-slow test-nightly check docs ready lock dist release beside clean

# A real search with the real TPU compiler, on a machine without a TPU.
search: $(READY)
	$(BIN)/autotune search matmul --shape m=1024,k=1024,n=1024 --chip v5e --trials 24

test: $(READY)
	$(PYTEST) $(BY_FILE) -m "not nightly" $(ARGS)

test-fast: $(READY)
	$(PYTEST) --dist worksteal -m "not slow" $(ARGS)

test-slow: $(READY)
	$(PYTEST) $(BY_FILE) -m "slow and not nightly" $(ARGS)

# What rarely breaks and takes long, and ten times as many examples of each property: whoever touches
# those parts runs it.
test-nightly: $(READY)
	$(PYTEST) $(BY_FILE) -m "nightly or hypothesis" --hypothesis-profile nightly $(ARGS)

check: $(READY) docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint docker/*.Dockerfile

# The documentation, into build/site: no network is needed, to read it neither. A dead link ends it, a
# page that nothing leads to, and one that loads something from another host.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	! grep -rlE '(src=|<link[^>]*href=)"?(https?:)?//' build/site --include='*.html'

ready: $(READY)

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# Pin everything again, for every Python and platform; then what the images need of it, for their
# Python, held to the same versions. Names no registry host.
LOCK = $(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-header --no-annotate \
  --no-emit-index-url
IMAGE_LOCK = $(LOCK) --group build --constraint requirements.lock --python-version 3.13
lock: $(READY)
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) --all-extras --python-version 3.11 -o requirements.lock
	$(IMAGE_LOCK) --extra serve --extra postgres -o docker/service.lock
	$(IMAGE_LOCK) --extra search --extra postgres --extra ray -o docker/worker.lock

# The wheel and the source distribution, as a release publishes them, checked.
dist: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build check-wheel-contents twine uv
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

# What a release publishes, in dist/: the wheel and the source, a bill of materials of either image, and
# the section of CHANGELOG.md as notes. The version is VERSION in autotune/domain/version.py.
VERSION := $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' autotune/domain/version.py)
release: $(READY)
	! git rev-parse -q --verify refs/tags/v$(VERSION) || { echo "v$(VERSION) is released: raise VERSION in autotune/domain/version.py"; exit 1; }
	grep -q '^## $(VERSION)\b' CHANGELOG.md || { echo "CHANGELOG.md has no section \"## $(VERSION)\": its first heading is the version to come"; exit 1; }
	$(MAKE) dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	mkdir -p build && sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml >build/pyproject.toml
	for image in service worker; do $(BIN)/cyclonedx-py requirements docker/$$image.lock --pyproject build/pyproject.toml -o dist/sbom-$$image.cdx.json || exit 1; done
	awk '/^## /{p = ($$2 == "$(VERSION)"); next} p' CHANGELOG.md >dist/notes.md
	@echo "the images, where there is Docker: docker compose -f docker/compose.yaml build; else docker/build-images service worker"

# Beside model servers: the resolver must find versions of all that they pin and we need.
BESIDE = "tpu-inference==0.32.0" "vllm-tpu==0.32.0" "maxtext[tpu]==0.2.5"
RESOLVE = $(BIN)/uv pip compile --quiet --python-version 3.12 --python-platform x86_64-manylinux_2_31 -
beside: dist
	mkdir -p build
	for other in $(BESIDE); do for extra in "" "[search,serve,postgres]"; do \
	  echo "beside $$other: pallas-autotune$$extra"; \
	  printf '%s\n' "$$other" "pallas-autotune$$extra @ file://$(CURDIR)/$$(ls dist/*.whl)" | $(RESOLVE) >build/beside.txt || exit 1; \
	  grep -E '^(jax|jaxlib|libtpu)==' build/beside.txt; \
	done; done

clean:
	rm -rf $(VENV) build *.egg-info
