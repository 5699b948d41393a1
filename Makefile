# `make run` and `make test` need Go, a JDK 17 with Maven, Node.js and Python; everything else is fetched by their package clients.

GO ?= go

.PHONY: build run check test bench clean

build: ## bin/handfast
	$(GO) build -o bin/handfast .

run: build ## a node on 127.0.0.1:8080 with its data in handfast-data, ready to use
	bin/handfast serve --dir handfast-data --listen 127.0.0.1:8080 --allow-private-targets

check: ## what every commit keeps green, in minutes
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) test -short ./...

# What needs a database of its own goes one after the other: three Cassandra processes are enough for two cores.
CLUSTERED = ./schema/scylla ./integration/...

test: ## everything
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) test -race -timeout 20m $$($(GO) list ./... | grep -v -e /schema/scylla -e /integration)
	$(GO) test -count=1 -run 'TestSimulation' ./partitions/owner # 100,000 seeds, which the race detector has no time for
	$(GO) test -p 1 -timeout 40m $(CLUSTERED)

bench: build ## a node beside the reference; rows in bench-results/one-node.json
	bin/handfast bench --out bench-results/one-node.json

clean:
	rm -rf bin handfast-data
