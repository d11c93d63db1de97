# make verify   compiles a shipped model, proves its C on this machine, and prints the report
# make test     runs the tests
#
# Both create the virtual environment .venv where it is absent, and renew it after a change of pyproject.toml.
#
#     PYTHON       the Python that .venv is made of, 3.11 or later
#     MODEL        the model of `make verify`
#     OPTIONS      further options of emitc or pytest
#     CONSTRAINTS  a file of versions for pip; constraints.txt has those that the tests ran with

PYTHON = python3
MODEL = examples/models/kws_ref_int8.tflite
OPTIONS =
CONSTRAINTS =

.PHONY: verify test environment

# An environment for the tests serves the proof as well.
verify: $(firstword $(wildcard .venv/installed-all) .venv/installed-verify)
	.venv/bin/emitc verify $(MODEL) $(OPTIONS)

test: .venv/installed-all
	.venv/bin/python -m pytest -n 2 $(OPTIONS)

environment: .venv/installed-all

.venv/installed-%: pyproject.toml
	@echo "Installing emitc[$*] into .venv, which takes some minutes for the first time."
	@test -x .venv/bin/python || $(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --editable ".[$*]" $(CONSTRAINTS:%=--constraint %)
	@touch $@
