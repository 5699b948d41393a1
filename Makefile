# `make run` and `make test` need Go, a JDK 17 with Maven, Node.js and Python; everything else is fetched by their package clients.

GO ?= go

.PHONY: build run check test bench bench-functions clean

build: ## bin/handfast
	$(GO) build -o bin/handfast .

run: build ## a node on 127.0.0.1:8080 with its data in handfast-data, ready to use
	bin/handfast serve --dir handfast-data --listen 127.0.0.1:8080 --allow-private-targets

check: ## what every commit keeps green, in minutes
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) test -short ./...

test: ## everything
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) test -race -timeout 20m ./...
	$(GO) test -count=1 -run 'TestSimulation' ./partitions/owner # 100,000 seeds, which the race detector has no time for

bench: build ## a node beside the reference; rows in bench-results/one-node.json
	bin/handfast bench --out bench-results/one-node.json

EMULATOR := github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@v0.0.0-20261030222936-bef5c4ba774d

bench-functions: build ## functions beside the AWS Runtime Interface Emulator; rows in bench-results/functions.json
	CGO_ENABLED=0 $(GO) build -o bin/web/bootstrap ./functions/handlers/web
	GOBIN=$(CURDIR)/bin $(GO) install $(EMULATOR)
	bin/handfast bench functions --handler bin/web --emulator bin/aws-lambda-rie --out bench-results/functions.json

clean:
	rm -rf bin handfast-data
