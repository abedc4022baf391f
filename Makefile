# make test: install what is missing, build, lint, run every test.   make demo: show the gateway at work;
# make demo-cluster: kill a node of a cluster and watch.
# Both need root. Everything else is cargo.
.PHONY: all packages build lint test demo demo-cluster clean-lab

all: build

packages:
	@scripts/install-packages.sh

build:
	@scripts/build.sh

lint:
	@scripts/lint.sh

test: packages
	@scripts/test.sh

demo:
	@scripts/demo.sh

demo-cluster:
	@scripts/demo-cluster.sh

# Removes namespaces, processes, pins and directories of labs that were killed.
clean-lab:
	@scripts/clean-lab.sh
