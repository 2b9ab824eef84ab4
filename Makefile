SHELL := /bin/sh
VENV = .venv
CANDIDATES = python3.13 python3.12 python3.11 python3
TARGETS = help run test test-all lint bench stress screenshots readme profile constraints clean
BENCHES = $(sort $(patsubst tests/bench/%.py,%,$(filter-out tests/bench/test_%,$(wildcard tests/bench/*.py))))
STRESSES = $(sort $(patsubst tests/stress/%.py,%,$(filter-out tests/stress/test_%,$(wildcard tests/stress/*.py))))
comma := ,
# What benches and stress runs import; their own folder is not on the path: cudnn.py there is a bench.
TESTS = $(CURDIR)/tests
SEEN = $(CURDIR):$(TESTS)/support

help:
	@echo 'make run               set up once, then the quick suite: where the GPU starts to win on this machine'
	@echo 'make test              set up once, then the tests (minutes)        make test ARGS="-k stream"'
	@echo 'make test-all          the slow tests too; wants Chromium and g++'
	@echo 'make bench NAME=...    one table of claims, measured here: $(if $(BENCHES),$(BENCHES),none yet)'
	@echo 'make stress NAME=...   the full counts of what the tests try a few of: $(if $(STRESSES),$(STRESSES),none yet)'
	@echo 'make lint | clean      ruff, mypy and the import rules | remove what was installed and cached'
	@echo 'make screenshots       the pictures of README and docs: RUN (reports/nvidia-h200/suite) as its page looks, an answer'
	@echo 'make readme            what README and the pages of machines quote, from the stored rows     ARGS=README.md'
	@echo 'make profile           the stored GPU of the package, from the rows in reports/'
	@echo 'make constraints       the newest versions into constraints.txt (CUDA 12) and constraints-cuda13.txt'
	@echo
	@echo 'ARGS="..."             more arguments               EXTRAS=bench,cuda13       more packages'
	@echo 'VENV=FOLDER            where packages are installed (.venv)    PYTHON=python3.12         the Python that makes it'
	@echo 'VENV=                  install nothing: PYTHON runs with the packages that it has'

# A name on PATH proves nothing (version managers leave stubs): a candidate counts when it runs and answers.
# The venv's own Python goes first: a finished set-up is then found without asking the others.
define find_python
python=; for p in $(if $(PYTHON),"$(PYTHON)",$(if $(VENV),"$(VENV)/bin/python") $(CANDIDATES)); do \
	if "$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1; \
	then python=$$p; break; fi; done; \
if [ -z "$$python" ]; then \
	echo 'error: $(if $(PYTHON),PYTHON=$(PYTHON) is not a Python 3.11$(comma) 3.12 or 3.13 that runs; leave PYTHON out to search for one: make $(MAKECMDGOALS) PYTHON=,no Python 3.11$(comma) 3.12 or 3.13 runs here (tried $(CANDIDATES)); sudo apt install python3 python3-venv$(comma) or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12)' >&2; exit 3; fi
endef

define ready
$(find_python); \
if [ -n '$(VENV)' ]; then "$$python" -B install.py '$(VENV)' '$(NEEDS),$(EXTRAS)' || exit; python='$(VENV)/bin/python'; fi
endef

# What was typed and is not known here: goals (folders and files too), variables, and a NAME that bench or stress lacks. Each goal
# then ends with the error for it, and nothing else is done.
TYPED = $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
UNKNOWN = $(filter-out $(TARGETS),$(MAKECMDGOALS)) \
	$(filter-out VENV ARGS NAME EXTRAS PYTHON RUN CANDIDATES SHELL MAKEFLAGS MFLAGS PAGES,$(TYPED)) \
	$(if $(filter bench,$(MAKECMDGOALS)),$(if $(filter $(BENCHES),$(NAME)),,bench)) \
	$(if $(filter stress,$(MAKECMDGOALS)),$(if $(filter $(STRESSES),$(NAME)),,stress))

ifneq ($(strip $(UNKNOWN)),)
$(or $(MAKECMDGOALS),help): refused
refused:
	@$(find_python); "$$python" -B -m workloads.corrections.make_goals; exit 2
endif
refused run: export GOALS = $(or $(MAKECMDGOALS),help)
refused run: export TARGETS := $(TARGETS)
refused run: export BENCHES := $(BENCHES)
refused run: export STRESSES := $(STRESSES)

run: NEEDS = keras,report
bench readme test lint stress: NEEDS = keras,report,dev
test-all: NEEDS = keras,report,fleet,dev
screenshots profile: NEEDS = report,dev

run:
	@$(if $(ARGS),$(find_python); "$$python" -B -m workloads.corrections.make_goals || exit;) \
	$(ready); "$$python" -m workloads.suite --quick $(ARGS)

test:
	@$(ready); "$$python" -m pytest -n 2 --dist loadscope -m "not slow" $(ARGS)

test-all:
	@$(ready); "$$python" -m pytest -n 2 --dist loadscope $(ARGS)

lint:
	@$(ready); "$$python" -m ruff check $(or $(ARGS),.) && "$$python" -m ruff format --check $(or $(ARGS),.) && "$$python" -m mypy && \
	"$$python" -c 'import importlinter.cli as c; c.lint_imports_command()' --no-cache --no-logo

bench:
	@$(ready); PYTHONSAFEPATH=1 PYTHONPATH='$(SEEN)' "$$python" 'tests/bench/$(NAME).py' $(ARGS)

stress:
	@$(ready); PYTHONSAFEPATH=1 PYTHONPATH='$(SEEN)' "$$python" 'tests/stress/$(NAME).py' $(ARGS)

screenshots:
	@$(ready); PYTHONPATH='$(SEEN)' "$$python" tests/support/screenshots.py '$(or $(RUN),reports/nvidia-h200/suite)' $(ARGS)

# Each marked part of these pages names the command that writes it.
readme: PAGES = README.md $(wildcard docs/*.md) $(wildcard reports/*/README.md)
readme:
	@$(ready); COLUMNS=80 PYTHONPATH='$(SEEN)' "$$python" tests/support/readme.py $(or $(ARGS),$(PAGES))

profile:
	@$(ready); PYTHONPATH='$(SEEN)' "$$python" tests/support/compact_profile.py

# The second starts from the first: what both flavors share has one version.
constraints: COMPILE = -q pyproject.toml --universal --python-version 3.11 --fork-strategy fewest --only-binary :all: --no-header --no-annotate \
	$(patsubst %,--extra %,keras jax report bench fleet dev fuzz)
constraints:
	@$(find_python); work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && "$$python" -m venv "$$work" && "$$work/bin/python" -m pip install -q uv && \
	"$$work/bin/uv" pip compile $(COMPILE) --extra cuda12 --upgrade -o constraints.txt >/dev/null && cp constraints.txt constraints-cuda13.txt && \
	"$$work/bin/uv" pip compile $(COMPILE) --extra cuda13 -o constraints-cuda13.txt >/dev/null && \
	"$$python" tests/support/download_sizes.py "$$work/bin/uv" constraints.txt cuda12 && \
	"$$python" tests/support/download_sizes.py "$$work/bin/uv" constraints-cuda13.txt cuda13

clean:
	@if [ -f '$(VENV)/pyvenv.cfg' ]; then rm -rf '$(VENV)' '$(VENV).log'; fi
	@rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: $(TARGETS) $(MAKECMDGOALS) refused
