# Everything runs in .venv, which the targets make themselves: all they need is Python 3.11 or newer.
#   make demo      install gpuplan and show one answer
#   make demo-report  write the budgets of the three example projects to docs/reports
#   make test      lint, the layers, and the tests: 12 minutes on two cores, installation included
#   make unit      only the quick tests: 3 minutes
#   make check     lint, the layers, and the types: 2 minutes
#   make test-accuracy  hold the predictions of published runs to their bounds: 3 minutes
#   make test-repeats  the cases that `make test` has in other combinations, or with fewer draws
#   make soak      200 faults of launches, guards and checkpoints; kill a run at random moments, and check that it resumes
#   make test-report  open reports and the pages of `gpuplan ui` in Chromium, workbooks in LibreOffice
#   make test-extras  write to real trackers, and read streams of real data set libraries
#   make test-frameworks  train under torchrun, accelerate, Lightning and DeepSpeed, and fine-tune, in .venv-frameworks
#   make test-cloud  launch on a simulated AWS, with real SkyPilot, and test with its click
#   make test-clouds  ask local servers for prices and quota with the real client libraries
#   make test-newest  trace and train with the newest release of everything, and torch as pip brings it
#   make bench     time whole commands and print them beside their budgets
#   make accuracy  compare predictions with published runs and write docs/accuracy.md
#   make published-profiles  trace the published image models, in .venv-published
#   make compatibility  trace models of popular libraries and write docs/compatibility.md
#   make clean     remove every .venv* and everything that was built
# PYTHON picks an interpreter, PIP_ARGS adds pip options (such as where to find CPU builds of torch),
# PYTEST_ARGS adds pytest options:  make test PYTEST_ARGS="-k offers"; CLOUD_ARGS those of test-cloud;
# KEEP_ARGS those of published-profiles (--check); COMPATIBILITY_ARGS those of compatibility;
# SOAK_ARGS those of soak:  make soak SOAK_ARGS="--soak-seed 7 --soak-seconds 300"

SHELL := /bin/sh
# Where modules are not kept compiled, each of the many processes of a test compiles them again.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export PYTHON PIP_ARGS

# All paths are relative, so that a folder name with spaces is no trouble.
BIN := .venv/bin
PYTEST := $(BIN)/pytest
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: help demo demo-report test unit check lint types soak test-accuracy test-repeats test-frameworks test-newest test-cloud test-clouds test-report test-extras bench accuracy published-profiles compatibility clean base dev report extras frameworks newest sky clouds published compatibility-libraries

help:
	@sed -n 's/^#   //p' Makefile

demo: base
	$(BIN)/gpuplan estimate examples/gpt2.py

demo-report: base report
	for name in grant startup lab; do \
	  $(BIN)/gpuplan report examples/projects/$$name.yaml -o docs/reports/$$name.html || exit; \
	done

# The environment of development has scipy, so a test of what it finds may not skip here.
test: lint
	GPUPLAN_REQUIRE="$$GPUPLAN_REQUIRE,scipy" $(PYTEST) $(PARALLEL) -m "not accuracy and not repeats" \
		--durations=15 $(PYTEST_ARGS)

test-accuracy: dev
	$(PYTEST) -m accuracy --durations=5 tests/test_accuracy*.py $(PYTEST_ARGS)

# Only the files that have some: to collect the others takes as long as many a case.
test-repeats: dev
	GPUPLAN_REQUIRE="$$GPUPLAN_REQUIRE,scipy" $(PYTEST) $(PARALLEL) -m repeats --durations=5 \
		$$(grep -rl --include='test_*.py' 'mark[.]repeats' tests) $(PYTEST_ARGS)

unit: dev
	$(PYTEST) $(PARALLEL) -m "not slow" $(PYTEST_ARGS)

check: lint types

lint: dev
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: dev
	$(BIN)/basedpyright --level error

soak: dev
	$(PYTEST) -rP tests/launcher/soak_*.py tests/launcher/runner/soak_*.py $(SOAK_ARGS)

bench: base
	$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

test-frameworks: frameworks
	.venv-frameworks/bin/python -m pytest tests/launcher/frameworks/real_*.py $(PYTEST_ARGS)

# Users have what pip brings: on Linux a torch for CUDA, which asks for a driver that a laptop lacks.
test-newest: newest
	.venv-newest/bin/python -m pytest $(PARALLEL) -m "not accuracy and not repeats" \
		tests/profiles tests/examples tests/planner/parallelism tests/launcher/runner $(PYTEST_ARGS)

# A part that is missing is a failure here; elsewhere these tests skip.
test-report: report
	sh scripts/install-report-tests.sh
	GPUPLAN_REQUIRE="$$GPUPLAN_REQUIRE,browser,libreoffice" $(PYTEST) tests/cli/render/report tests/cli/pages $(PYTEST_ARGS)

# What a run may use and need not: these tests skip where it is missing, and fail here.
test-extras: extras
	GPUPLAN_REQUIRE="$$GPUPLAN_REQUIRE,tensorboard,wandb,mlflow,webdataset,datasets,torchdata" \
		$(PYTEST) tests/launcher/runner/reporting \
		tests/launcher/runner/input/test_stream_libraries.py $(PYTEST_ARGS)

# SkyPilot holds click below 8.2. A home of its own, since SkyPilot writes to it as it is imported.
# What writes reports and pages asks click for nothing, and needs libraries that are not there.
test-cloud: sky
	mkdir -p .venv-sky/home
	HOME="$(CURDIR)/.venv-sky/home" GPUPLAN_REQUIRE="$$GPUPLAN_REQUIRE,skypilot" \
		.venv-sky/bin/python -m pytest -m "not slow" tests/cli \
		--ignore=tests/cli/render/report --ignore=tests/cli/pages tests/launcher/*/test_*sky*.py
	HOME="$(CURDIR)/.venv-sky/home" GPUPLAN_REQUIRE="$$GPUPLAN_REQUIRE,skypilot" \
		.venv-sky/bin/python -m pytest -m slow tests/launcher/*/test_*sky*.py
	.venv-sky/bin/python -m pytest --durations=10 tests/offline_cloud/real_*.py $(CLOUD_ARGS)

# boto3, Google's and Azure's own libraries against local servers, in an environment of their own.
test-clouds: clouds
	GPUPLAN_REQUIRE="$$GPUPLAN_REQUIRE,cloud-clients" \
		.venv-clouds/bin/python -m pytest --durations=5 tests/catalog/clouds/real_*.py tests/catalog/clouds/*/real_*.py $(PYTEST_ARGS)

base dev report extras frameworks newest sky clouds published:
	@sh scripts/install.sh $@

compatibility-libraries:
	@sh scripts/install.sh compatibility

accuracy: dev
	$(BIN)/python benchmarks/accuracy.py $(ACCURACY_ARGS)

published-profiles: published
	.venv-published/bin/python benchmarks/keep_profiles.py $(KEEP_ARGS)

compatibility: compatibility-libraries
	.venv-compatibility/bin/python benchmarks/trace_libraries.py $(COMPATIBILITY_ARGS)

clean:
	rm -rf .venv .venv-clouds .venv-compatibility .venv-frameworks .venv-newest .venv-published .venv-sky build dist *.egg-info .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
