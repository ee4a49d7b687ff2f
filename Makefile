GO ?= go
STATICCHECK_VERSION ?= 2026.1
export CGO_ENABLED ?= 0

.PHONY: build test lint fuzz-short race quickstart generate

build: ## bin/run-campaign
	$(GO) build -o bin/run-campaign ./cmd/run-campaign

test: ## the fast suite
	$(GO) test ./...
