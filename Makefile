SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# One set of flags for every go command: static binaries, the same bytes on
# every machine, one build cache.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the plugin, the node's binary, the Lambda zip and the region's binaries into bin/
	@mkdir -p bin/region provider/artifact/release
	go run ./provider/artifact/cmd/artifacts -o bin
	@install -C -m 0755 bin/etcfs-bootstrap bin/graceful-leave.zip provider/artifact/release
	go build -tags release -o bin/pulumi-resource-etcfs .
	go build -o bin/region/pulumi-resource-aws ./tests/awsplugin/cmd/pulumi-resource-aws
	go build -o bin/region/standin ./tests/region/standin/cmd/standin
	go build -o bin/region/region ./tests/region/cmd/region

.PHONY: tools
tools: ## Print the folder of pulumi, its language hosts, etcd and etcdctl (3.5 in etcd-3.5/); build what is missing
	@tools/install stack

.PHONY: sdk
sdk: ## Generate the schema, the SDKs and docs/reference.md from the component
	go run ./provider/cmd/generate

# The tests, the benchmarks and the demo run the binaries in bin/, and find the
# tools by this variable. Results are not cached: the go command does not see
# what a test executes.
tooled = ETCFS_TOOLS="$$(tools/install stack)"

.PHONY: test
test: build ## Run every test
	@$(tooled) && export ETCFS_TOOLS && go test -count=1 -timeout=40m ./...

.PHONY: demo
demo: build ## Show the life of a cluster in a region in a box: up, scale out and in, lose a node, destroy
	@$(tooled) && export ETCFS_TOOLS && go build -o bin/region/demo ./tests/demo && exec bin/region/demo

.PHONY: e2e
e2e: build ## Show the life of a cluster on systemd machines, which run the unchanged user data; needs root
	@$(tooled) && export ETCFS_TOOLS && go build -o bin/region/e2e ./tests/e2e && exec bin/region/e2e

DURATION ?= 10m
SEED ?=

.PHONY: chaos
chaos: build ## Inject faults into a cluster for DURATION (10m), as SEED decides, and judge what happened
	@$(tooled) && export ETCFS_TOOLS && go build -o bin/region/chaos ./tests/chaos && exec bin/region/chaos -duration=$(DURATION) -seed=$(SEED)

.PHONY: bench
bench: build ## Run the benchmarks
	@$(tooled) && export ETCFS_TOOLS && go test -run '^$$' -bench . -benchmem ./...

.PHONY: lint
lint: ## Run the linters over the Go code and the shell scripts
	@tools/shellcheck
	@folder=$$(tools/install lint); "$$folder/golangci-lint" run ./...

.PHONY: fmt
fmt: ## Format the Go code and mend what the linters can mend
	@folder=$$(tools/install lint); "$$folder/golangci-lint" fmt ./...; "$$folder/golangci-lint" run --fix ./...

.PHONY: clean
clean: ## Remove what was built (the cache of tools stays)
	rm -rf bin provider/artifact/release
