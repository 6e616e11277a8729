.PHONY: setup quick test acceptance lint lint-python lint-agent fuzz torture bench bench-short simulations mutants regressions causes \
	lab-boots docs site architecture wheel release lock sbom audit clean help

# What many processes import is compiled once, also where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

TARE := .venv/bin/tare
PYTEST := .venv/bin/python -m pytest
SEEDED := --hypothesis-seed=0

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:  ## programs that are missing, .venv, the agent; NO_INSTALL=1 only lists what is missing
	@scripts/setup setup

quick:  ## set up, run the quick study, name the report; NO_INSTALL=1 uses what is there
	@scripts/setup quick
	@$(TARE) run quick

test:  ## set up what is missing and run all tests
	@scripts/setup test
	@# Five processes would compile all tests five times: meanwhile, one does it.
	@$(PYTEST) --collect-only --quiet > /dev/null & \
	nice cargo test --locked --quiet --manifest-path agent/Cargo.toml; status=$$?; wait; exit $$status
	@# What measures needs the computer for itself; the rest runs side by side, a file's labs in one place.
	@# More processes than CPUs: many tests wait most of their time. Neighbours share their fixtures.
	@# Four processes boot: three kept two CPUs busy for 60 % of their time, as many tests wait.
	@# A commit passes or fails every time: examples are drawn from one seed. `make fuzz` draws others.
	@$(PYTEST) $(SEEDED) -n 5 --dist worksteal -m "not slow and not acceptance"; quick=$$?; \
	$(PYTEST) $(SEEDED) -n 4 --dist loadfile --no-loadscope-reorder -m "slow and boots and not acceptance"; boots=$$?; \
	$(PYTEST) $(SEEDED) -m "slow and not boots and not acceptance" && exit $$((quick + boots))

PARTS :=

acceptance:  ## what takes longer than test, some hours; PARTS="labs debian-13" for some of it
	@scripts/setup test
	@.venv/bin/python tests/acceptance.py $(PARTS)

lint:  ## types, style, layers, formats, words
	@scripts/setup quick
	@# Python's part uses one CPU for a minute.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint-python lint-agent

lint-python:
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	.venv/bin/python scripts/declared_hooks.py
	.venv/bin/python scripts/agent_cycles.py
	.venv/bin/python scripts/import_cycles.py
	.venv/bin/python scripts/prose.py
	.venv/bin/python -m benchmarks --check

lint-agent:
	cargo fmt --manifest-path agent/Cargo.toml --check
	cargo clippy --locked --quiet --manifest-path agent/Cargo.toml --all-targets -- -D warnings

fuzz:  ## every parser of outside bytes, for longer
	@scripts/setup test
	PROPTEST_CASES=200000 cargo test --locked --release --manifest-path agent/Cargo.toml
	@# What it finds is kept in tests/corpora and agent/proptest-regressions, and tried first from then on.
	TARE_FUZZ=1 $(PYTEST) -m fuzz

FAULTS := 200

torture:  ## random faults over short runs, and the table of docs/explanation/testing.md; FAULTS=N for fewer
	@scripts/setup test
	PYTHONPATH=tests .venv/bin/python -m torture --faults $(FAULTS) --write docs/explanation/testing.md

AGENT := 0

mutants:  ## give the program random mistakes, and count which the tests notice; AGENT=N for N of the agent
	@scripts/setup test
	.venv/bin/python -m scripts.mutants --agent $(AGENT)

bench:  ## the figures of benchmarks/, each against its peer in the same run
	@scripts/setup bench
	.venv/bin/python -m benchmarks

bench-short:  ## the figures that every change may move, in pairs, at most 15 minutes
	@scripts/setup bench
	.venv/bin/python -m benchmarks --short

simulations:  ## verdicts and sentences on studies of known truth: the tables of docs/explanation/statistics.md
	@scripts/setup bench
	.venv/bin/python -m benchmarks.verdict_simulations --tables docs/explanation/statistics.md
	.venv/bin/python -m benchmarks.stopping_simulations --tables docs/explanation/stopping.md
	.venv/bin/python -m benchmarks.sentence_simulations --tables docs/explanation/statistics.md

REGRESSIONS := regressions

regressions:  ## build Xens with and without a slow path, measure each in labs: docs/how-to/regressions.md
	@scripts/setup bench
	.venv/bin/python -m scripts.path_regressions --work $(REGRESSIONS)

CAUSES := 4

causes:  ## plant causes of an added time in a guest in the lab, and print how much of each is found
	@scripts/setup bench
	.venv/bin/python -m benchmarks.planted_causes --blocks $(CAUSES)

LAB_BOOTS := lab-boots

lab-boots:  ## boot KVM guests in labs under contention, for each way of emulating them: docs/explanation/lab.md
	@scripts/setup bench
	.venv/bin/python -m scripts.lab_boots --work $(LAB_BOOTS) --qemu 10=$$(scripts/newer-qemu)/qemu-system-x86_64

docs:  ## generate the study's reference, the tables of platforms and sources, the man page
	.venv/bin/python -m tare.run.reference
	.venv/bin/python -m tare.cli.manual
	.venv/bin/python -m tare.references.listing
	.venv/bin/python -m benchmarks --page

site:  ## build the documents as a site in dist/site, with search, offline
	@scripts/site/build

architecture:  ## draw docs/explanation/architecture.md and its picture from the code
	.venv/bin/python scripts/architecture.py

wheel:  ## build the package for package indexes, in dist/
	@scripts/setup quick
	@scripts/wheel

release: setup  ## build the wheel, the bundle for hosts without apt, and the wheel of that, in dist/
	@scripts/release

lock:  ## renew locks/: the versions and hashes that set-up and CI install
	@scripts/lock --upgrade

sbom:  ## list every dependency of the package and the agent, in dist/
	@scripts/setup quick
	@.venv/bin/python scripts/sbom.py

audit:  ## ask the public databases for known faults in what is locked
	@scripts/setup quick
	@scripts/audit

clean:  ## remove what was built (not what was measured)
	rm -rf .venv agent/target target dist
