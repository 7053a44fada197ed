# The one entrance: "make test" is what a newcomer runs, "make test-all" what CI runs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
GO := go
# The longest first: the go command starts packages in this order, and one that is
# started last is waited for alone.
PKGS ?= ./test ./target/kernel ./test/foreign ./cmd/kprobe ./...
# How long a fuzz target, and how long a soak test, runs.
FUZZTIME ?= 20s
SOAK ?= 1h

# Many tests wait for a target or a guest more than they compute, so one package more
# than there are CPUs is under way.
TEST := $(GO) test -count=1 -p $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) -json

# One line of counts at the end, and in CI no skips.
TALLY := $(GO) run ./internal/testprog/cmd/tally

# The packages whose tests have goroutines, or unsafe pointers.
RACED := $(GO) run ./internal/testprog/cmd/raced

.PHONY: help build setup lint cross test test-all race bench fuzz soak clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile

build: ## bin/kprobe, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kprobe ./cmd/kprobe

setup: ## what the tests run against (as root: installs it)
	scripts/setup.sh

lint: cross ## gofmt, vet, staticcheck, the layering, other machines' builds
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)
	$(GO) test -count=1 -run '^TestLayers' .

# A file that is built on this machine only drops out of the others in silence. A Mac
# probes kernels and stubs; processes are Linux's.
MACHINES := arm64 riscv64 ppc64le s390x
MAC := ./arch/... ./spec/... ./symbol/... ./bpf/... ./event/... ./trace/... ./target/gdbremote/... ./target/kernel/... ./cmd/...

cross: ## builds and vets for machines and systems that this is not
	@for m in $(MACHINES); do echo "linux/$$m"; \
	  GOARCH=$$m $(GO) build ./... && GOARCH=$$m $(GO) vet ./... || exit 1; done
	@echo darwin/arm64; GOOS=darwin GOARCH=arm64 $(GO) build ./... && GOOS=darwin GOARCH=arm64 $(GO) vet $(MAC)

# What a newcomer runs: all of the behaviour, in minutes. -short makes tests do less,
# never skip. Targets are traced, so a hang is possible; the timeout prints where.
test: setup ## all of the behaviour, briefly
	$(TEST) -timeout 30m -short $(PKGS) | $(TALLY)

# What CI runs: lint, which has vetted what is tested then; all in full, and what has goroutines again with the race detector, but briefly.
test-all: setup lint ## everything: in full, then briefly with the race detector
	{ $(TEST) -vet=off -timeout 60m $(PKGS); \
	  raced=$$($(RACED) $(PKGS)); \
	  $(TEST) -vet=off -timeout 40m -race -short $$raced; } | $(TALLY)

race: ## the tests with the race detector, in full
	$(TEST) -timeout 60m -race $(PKGS) | $(TALLY)

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
