# One verb per task; each is one line that calls `python -m ci VERB`. `make help` lists them.
PYTHON ?= python3
# The environment: of the lock, or of another set of versions in pyproject.toml (SET=newest).
SET ?=
VENV := $(if $(SET),_build/sets/$(SET),.venv)
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PAGE ?= init-schemes

.DEFAULT_GOAL := help
.PHONY: help book test pair run merge gather repeat drift weekly marks site check serve zip course page audit new legacy gpu faults bench supply release publish rehearsal ci-rehearsal browser \
	clean lock

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

book: $(READY) ## check the pairs, execute all pages, build the site, print its address
	$(PY) -m ci book

test: $(READY) ## check, execute, build, run the tests (ARGS="-k pair" for some)
	$(PY) -m ci test $(ARGS)

pair: $(READY) ## write notebooks/*.ipynb from book/*.md
	$(PY) -m ci pair

run: $(READY) ## execute the pages that changed
	$(PY) -m ci run $(ARGS)

merge: $(READY) ## put together what `run --shard i/n` left on other machines (ARGS="parts/*")
	$(PY) -m ci merge $(ARGS)

gather: $(READY) ## merge all parts that a workflow's machines have left (ARGS=parts)
	$(PY) -m ci gather $(ARGS)

repeat: $(READY) ## run each page several times, warm and cold, and compare (ARGS="--times 3")
	$(PY) -m ci repeat $(ARGS)

drift: $(READY) ## compare two runs with other versions (ARGS="pinned/_build newest/_build")
	$(PY) -m ci drift $(ARGS)

weekly: $(READY) ## compare runs with other versions, tell what differs (ARGS="parts newest")
	$(PY) -m ci weekly $(ARGS)

marks: $(READY) ## take over what the last weekly run found, for the site to show
	$(PY) -m ci marks $(ARGS)

site: $(READY) ## build _build/html from the executed notebooks; executes nothing
	$(PY) -m ci site

check: $(READY) ## the pages' grammar, links, claims and the settings
	$(PY) -m ci check

serve: $(READY) ## serve the site locally, rebuilt on each save
	$(PY) -m ci serve $(ARGS)

zip: $(READY) ## the site in one archive, to be read without a network
	$(PY) -m ci zip

course: $(READY) ## all notebooks in two archives, without and with the solutions
	$(PY) -m ci course

page: $(READY) ## one page alone, to the browser (PAGE=init-schemes)
	$(PY) -m ci page $(PAGE) $(ARGS)

audit: $(READY) ## measure the built site: bytes, access, Lighthouse (ARGS="--no-lighthouse")
	$(PY) -m ci audit $(ARGS)

new: $(READY) ## a new page from the style guide (PAGE=nn-module)
	$(PY) -m ci new $(PAGE)

legacy: $(READY) ## run the scripts for old versions, record them on their pages (ARGS=estimator)
	$(PY) -m ci legacy $(ARGS)

gpu: $(READY) ## keep what a run on a GPU has measured, show it on the pages (ARGS=gpu-machine/_build)
	$(PY) -m ci gpu $(ARGS)

faults: $(READY) ## inject faults, show how each ends (ARGS="--write" into ci/README.md)
	$(PY) -m ci faults $(ARGS)

bench: $(READY) ## how fast the line is, beside others and the machine's limit (ARGS="--rounds 1")
	$(PY) -m ci bench $(ARGS)

supply: $(READY) ## known weaknesses of the versions, each answered
	$(PY) -m ci supply

release: $(READY) ## what people download with a release (ARGS=v0.1.0)
	$(PY) -m ci release $(ARGS)

publish: $(READY) ## put the site where a server reads it, in one step (ARGS=/srv/book)
	$(PY) -m ci publish $(ARGS)

rehearsal: $(READY) ## do here what the workflow does, then break it in many ways
	$(PY) -m ci rehearsal $(ARGS)

ci-rehearsal: rehearsal

browser: $(READY) ## the browser of the tests, and what it needs of the system
	$(PY) -m playwright install --with-deps chromium

clean: $(READY) ## remove _build
	$(PY) -m ci clean

lock: $(READY) ## remake requirements.txt from pyproject.toml
	$(PY) -m ci lock

# The environment, made anew when the versions change. The stamp comes last: an interrupted
# install is done again.
$(READY): requirements.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); \
	ok or sys.exit("Python %d.%d is not supported: use 3.11 to 3.13, as in `make PYTHON=python3.13 book`" % sys.version_info[:2])'
	rm -rf $(VENV)
ifeq ($(SET),)
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
else
	$(PYTHON) -m ci.sets $(SET) $(VENV)
endif
	touch $(READY)
