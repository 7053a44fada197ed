# The one entrance: "make test" is what a developer runs and what CI runs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
GO := go
PKGS ?= ./...
# How long a fuzz target, and how long a soak test, runs.
FUZZTIME ?= 20s
SOAK ?= 1h

# One line of counts at the end, and in CI no skips.
TALLY := $(GO) run ./internal/testprog/cmd/tally

.PHONY: help build setup lint test race bench fuzz soak clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile

build: ## bin/kprobe, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kprobe ./cmd/kprobe

setup: ## what the tests run against (as root: installs it)
	scripts/setup.sh

lint: ## gofmt, vet, staticcheck, the layering
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)
	$(GO) test -count=1 -run '^TestLayers' .

# With the race detector the whole again, but short: -short makes tests do less,
# never skip. Targets are traced, so a hang is possible; the timeout prints where.
test: setup lint ## everything
	{ $(GO) test -count=1 -timeout 40m -json $(PKGS); \
	  $(GO) test -count=1 -timeout 40m -json -race -short $(PKGS); } | $(TALLY)

race: ## the tests with the race detector, in full
	$(GO) test -count=1 -timeout 40m -json -race $(PKGS) | $(TALLY)

bench: ## speed, in the format of Go's benchmarks (benchstat reads it)
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m ./bench/...

# The go command fuzzes one target at a time.
fuzz: ## every fuzz target, FUZZTIME each
	@grep -rn --include='*_test.go' '^func Fuzz' . | sed 's/:.*func \(Fuzz[A-Za-z0-9_]*\).*/ \1/' | \
	while read -r file target; do \
	  echo "$$target in $$(dirname $$file)"; \
	  $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$(dirname $$file) </dev/null; \
	done

soak: ## the soak tests, SOAK each
	SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run '^TestSoak' $(PKGS)

clean: ## what was built here
	rm -rf bin
