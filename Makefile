# make demo: show the gateway at work.   make demo-cluster: kill a node of a cluster and watch.
# make demo-spread: one tunnel on one node, two, three.   make demo-migrate: a virtual machine moves.
# make test: what every change must pass.   make test-all: the whole matrix (docs/testing.md).
# make build: testudod and testudo.   make install: these two and the unit (PREFIX, DESTDIR).
# make tools: the benchmarks, the simulator and the demos too.
# All install what is missing, and need root. Everything else is cargo.
.PHONY: all packages build install tools lint test test-all steady list-tests docs demo demo-cluster demo-spread demo-migrate clean-lab

all: build

packages:
	@scripts/install-packages.sh

build:
	@scripts/build.sh

install:
	@scripts/install.sh

tools:
	@scripts/build.sh --all

lint:
	@scripts/lint.sh

test:
	@scripts/test.sh run

test-all:
	@scripts/test.sh run --all

# Labs again and again while all processors are loaded: make steady TIMES=20
TIMES = 20
steady:
	@scripts/test.sh steady --times $(TIMES)

# Every test with the command that runs it.
list-tests:
	@scripts/test.sh list

# A book of all pages in target/docs/book, and whether their links hold. Needs the network once.
docs:
	@scripts/docs.sh

demo:
	@scripts/demo.sh

demo-cluster:
	@scripts/demo-cluster.sh

demo-spread:
	@scripts/demo-spread.sh

demo-migrate:
	@scripts/demo-migrate.sh

# Removes namespaces, processes, pins and directories of labs that were killed.
clean-lab:
	@scripts/clean-lab.sh
