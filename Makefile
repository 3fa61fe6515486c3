SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# One set of flags for every go command: static binaries, the same bytes on
# every machine, one build cache.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

# What runs on an instance or in Lambda is for linux/amd64, whatever builds it.
node := GOOS=linux GOARCH=amd64

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the plugin, the node's binary, the Lambda zip and the region's binaries into bin/
	@mkdir -p bin/lambda bin/region
	go build -o bin/pulumi-resource-etcfs .
	$(node) go build -ldflags '-s -w' -o bin/etcfs-bootstrap ./bootstrap/cmd/etcfs-bootstrap
	$(node) go build -tags lambda.norpc -ldflags '-s -w' -o bin/lambda/bootstrap ./lambda/cmd/graceful-leave
	go run ./tools/lambdazip -o bin/graceful-leave.zip bin/lambda/bootstrap
	go build -o bin/region/pulumi-resource-aws ./tests/awsplugin/cmd/pulumi-resource-aws
	go build -o bin/region/standin ./tests/region/standin/cmd/standin
	go build -o bin/region/region ./tests/region/cmd/region

.PHONY: tools
tools: ## Print the folder of pulumi, its language hosts, etcd and etcdctl; build what is missing
	@tools/install stack

.PHONY: sdk
sdk: ## Generate the schema and the SDKs from the component
	go generate ./sdk

.PHONY: test
test: build ## Run every test
	@ETCFS_TOOLS=$$(tools/install stack); export ETCFS_TOOLS; go test ./...

.PHONY: demo
demo: build ## Show a cluster's life in a region in a box: up, scale out and in, lose a node, destroy
	@ETCFS_TOOLS=$$(tools/install stack); export ETCFS_TOOLS; go build -o bin/region/demo ./tests/demo; exec bin/region/demo

.PHONY: bench
bench: build ## Run the benchmarks
	@ETCFS_TOOLS=$$(tools/install stack); export ETCFS_TOOLS; go test -run '^$$' -bench . -benchmem ./...

.PHONY: lint
lint: ## Run the linters over the Go code and the shell scripts
	@tools/shellcheck
	@folder=$$(tools/install lint); "$$folder/golangci-lint" run ./...

.PHONY: fmt
fmt: ## Format the Go code and mend what the linters can mend
	@folder=$$(tools/install lint); "$$folder/golangci-lint" fmt ./...; "$$folder/golangci-lint" run --fix ./...

.PHONY: clean
clean: ## Remove what was built (the cache of tools stays)
	rm -rf bin
