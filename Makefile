# The one entrance: "make test" is the gate, which CI runs too; "make test-all" is the long run.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
GO := go
# The longest first: the go command starts packages in this order, and one that is
# started last is waited for alone.
PKGS ?= ./target/kernel ./test/torture ./cmd/kprobe ./test/inside ./test/life ./test/realworld ./test/conform ./...
# How long a fuzz target, and how long a soak test, runs.
FUZZTIME ?= 20s
SOAK ?= 1h

# $(call tests,RESULTS,PACKAGES,FLAGS) tests packages: a line each while they run, and all results in a file.
# A test that fails runs again, alone: twice at most, and ten tests at most. A race is a race at once. No test reads
# the debug information of its own binary, and linking is a third quicker without (-ldflags=-w).
tests = $(GO) tool gotestsum --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg --hide-summary all \
	--rerun-fails=2 --rerun-fails-max-failures=10 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
	--jsonfile $(1) --packages="$(2)" -- -count=1 -ldflags=-w -p $(shell scripts/at-once.sh) $(3)

# What failed, what ran again, and one line of counts at the end; in CI no skips.
TALLY := $(GO) run ./internal/testprog/cmd/tally

# The packages whose tests have goroutines, or unsafe pointers.
RACED := $(GO) run ./internal/testprog/cmd/raced

# The kernels of the long run's guests, MACHINE:VERSION each.
KERNELS := amd64:6.12 arm64: riscv64: s390x: ppc64le:

.PHONY: help build setup setup-all lint cross test test-all race bench fuzz soak clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile

build: ## bin/kprobe, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kprobe ./cmd/kprobe

setup: ## what the tests run against (as root: installs it), and the kernel of the gate's guest
	scripts/setup.sh
	$(GO) run ./cmd/kprobe vm --fetch || [ -z "$${CI:-}" ] # else the tests of guests say so

setup-all: setup ## what the long run needs, too: the kernels of its guests
	for k in $(KERNELS); do $(GO) run ./cmd/kprobe vm --fetch --arch $${k%:*} --kernel "$${k#*:}"; done

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

# What a newcomer runs, and CI: docs/TESTING.md tells what is left to test-all. -short makes tests do less,
# KPROBE_GATE leaves out those of the long run, and nothing is fetched in the middle of a test. Targets are traced, so a hang is possible; the timeout prints where.
test: setup ## the gate: all of the behaviour, briefly
	mkdir -p bin; status=0; \
	KPROBE_OFFLINE=1 KPROBE_GATE=1 $(call tests,bin/brief.json,$(PKGS),-timeout 30m -short) || status=$$?; \
	$(TALLY) bin/brief.json || status=$$?; exit $$status

# lint has vetted what is tested then.
test-all: setup-all lint ## the long run: everything in full, then briefly with the race detector
	mkdir -p bin; status=0; raced=$$($(RACED) $(PKGS) | tr '\n' ' '); \
	KPROBE_OFFLINE=1 $(call tests,bin/full.json,$(PKGS),-vet=off -timeout 60m) || status=$$?; \
	KPROBE_OFFLINE=1 $(call tests,bin/race.json,$$raced,-vet=off -timeout 40m -race -short) || status=$$?; \
	$(TALLY) bin/full.json bin/race.json || status=$$?; exit $$status

race: ## the tests with the race detector, in full
	mkdir -p bin; status=0; \
	$(call tests,bin/race.json,$(PKGS),-timeout 60m -race) || status=$$?; \
	$(TALLY) bin/race.json || status=$$?; exit $$status

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
