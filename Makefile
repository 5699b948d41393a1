# `make run` and `make test` need Go, a JDK 17 with Maven, Node.js and Python; everything else is fetched by their package clients. For AWS's runtime
# client for Node the tests also need autoconf, automake, libtool, cmake, make and g++, which they install by apt-get where they run as root.

GO ?= go
LISTEN ?= 127.0.0.1:8080

.PHONY: build run check test bench bench-cluster bench-functions generate clean

build: ## bin/handfast
	$(GO) build -o bin/handfast .

run: build ## a node on LISTEN with its data in handfast-data, ready to use
	bin/handfast serve --dir handfast-data --listen $(LISTEN) --allow-private-targets

check: ## what every commit keeps green, in minutes
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) test -short ./...

# What needs a database of its own goes one after the other: three Cassandra processes are enough for two cores.
CLUSTERED = ./schema/scylla ./integration/...

# Without -count=1 a result would be taken from Go's cache, which does not see the programs that tests build and run.
test: ## everything
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) test -count=1 -race -timeout 20m $$($(GO) list ./... | grep -v -e /schema/scylla -e /integration)
	$(GO) test -count=1 -run 'TestSimulation' ./partitions/owner # 100,000 seeds, which the race detector has no time for
	$(GO) test -count=1 -p 1 -timeout 40m $(CLUSTERED)

bench: build ## a node beside the reference; rows in bench-results/one-node.json
	bin/handfast bench --out bench-results/one-node.json

EMULATOR := github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@v0.0.0-20261030222936-bef5c4ba774d

bench-functions: build ## functions beside the AWS Runtime Interface Emulator; rows in bench-results/functions.json
	CGO_ENABLED=0 $(GO) build -o bin/web/bootstrap ./functions/handlers/web
	GOBIN=$(CURDIR)/bin $(GO) install $(EMULATOR)
	bin/handfast bench functions --handler bin/web --emulator bin/aws-lambda-rie --out bench-results/functions.json

bench-cluster: build ## three nodes on three Cassandra processes beside the database alone; rows in bench-results/cluster.json
	$(GO) build -o bin/cassandra ./integration/cassandra/cmd
	@set -e; out=$$(mktemp); bin/cassandra >$$out & pid=$$!; trap 'kill $$pid 2>/dev/null || true; wait $$pid || true; rm -f $$out' EXIT; \
	until grep -q ^export $$out; do kill -0 $$pid; sleep 1; done; . $$out; \
	bin/handfast bench cluster --cql-hosts "$$HANDFAST_TEST_CQL_HOSTS" --out bench-results/cluster.json

generate: ## partitions/peer/peerpb, with grpcio-tools 1.66.2 for Python (protoc 27.2), protoc-gen-go v1.36.6 and protoc-gen-go-grpc v1.5.1 in PATH
	python3 -m grpc_tools.protoc -Ipartitions/peer --go_out=partitions/peer/peerpb --go_opt=paths=source_relative \
		--go-grpc_out=partitions/peer/peerpb --go-grpc_opt=paths=source_relative peer.proto

clean:
	rm -rf bin handfast-data
