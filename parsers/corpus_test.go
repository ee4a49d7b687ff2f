package parsers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// corpus is where the shared conformance data keep outputs that people published: other builds, other encodings,
// broken runs. They are read in place.
const corpus = "../../shared/fixtures/public"

func TestPublishedOutputsAreReadOrRefusedClearly(t *testing.T) {
	if _, err := os.Stat(corpus); err != nil {
		t.Skip("the shared conformance data are not here: ", err)
	}
	for _, c := range []struct {
		file   string
		stage  string
		n      int     // measurements
		metric string  // of the last one
		value  float64 // of the last one, to six digits
		kind   error
		line   int
	}{
		{"lb-b1275-cuda.json", Throughput, 2, TokensPerSecond, 130.966, nil, 0},
		{"lb-b1275-cuda.jsonl", Throughput, 2, TokensPerSecond, 130.966, nil, 0},
		{"lb-b1275-cuda.csv", Throughput, 0, "", 0, ErrContradiction, 2}, // 27 values for 26 columns, as published
		{"lb-b1275-cuda.sql", Throughput, 0, "", 0, ErrContradiction, 30},
		{"lb-b5163-cuda.csv", Throughput, 2, TokensPerSecond, 119.915, nil, 0},
		{"lb-b5163-cuda.json", Throughput, 2, TokensPerSecond, 118.882, nil, 0},
		{"lb-b5163-cuda.jsonl", Throughput, 2, TokensPerSecond, 119.845, nil, 0},
		{"lb-b5163-cuda.sql", Throughput, 2, TokensPerSecond, 120.347, nil, 0},
		{"lb-b6077-rocm-r5.jsonl", Throughput, 7, TokensPerSecond, 189.266, nil, 0},
		{"lb-b6865-rocm-stderr-mixed.txt", Throughput, 6, TokensPerSecond, 142.840, nil, 0},
		{"lb-b7361-vulkan-two-gpus.txt", Throughput, 6, TokensPerSecond, 129.8, nil, 0},
		{"lb-b7693-rpc-depth-md.log", Throughput, 2, TokensPerSecond, 4.12, nil, 0},
		{"lb-b7772-cuda-orin.csv", Throughput, 2, TokensPerSecond, 3.40085, nil, 0},
		{"lb-b7951-vulkan-kvq8.json", Throughput, 6, TokensPerSecond, 1783.27, nil, 0},
		{"lb-b8067-rocm.json", Throughput, 12, TokensPerSecond, 14.1595, nil, 0},
		{"lb-b9193-rocm-depth-md.log", Throughput, 2, TokensPerSecond, 6.14, nil, 0},
		{"lb-b10246-rocm-depth.jsonl", Throughput, 9, TokensPerSecond, 11.2977, nil, 0},
		{"lb-b10069-kleidiai-repack-verbose.log", Throughput, 0, "", 0, ErrForm, 1},
		{"lb-rocm-died-before-table.log", Throughput, 0, "", 0, ErrForm, 1},
		{"lb-sycl-powershell-utf16-header-only.txt", Throughput, 0, "", 0, ErrTruncated, 25},
		{"lb-wrapper-container-failed.log", Throughput, 0, "", 0, ErrForm, 1},

		{"ppl-b1700-cpu-two-chunks.log", Perplexity, 2, PerplexityMetric, 7.8568, nil, 0},
		{"ppl-b4905-amx-cpu-full.txt", Perplexity, 2, PerplexityMetric, 3.3490, nil, 0},
		{"ppl-ik-140chunks-ok.txt", Perplexity, 2, PerplexityMetric, 3.1010, nil, 0},
		{"ppl-log-timestamps-excerpt.log", Perplexity, 2, PerplexityMetric, 10.1498, nil, 0},
		{"ppl-no-final-estimate-utf16.txt", Perplexity, 2, PerplexityMetric, 1065676.2079, nil, 0}, // it stands behind the estimate of time
		{"ppl-sycl-garbage-value-utf16.txt", Perplexity, 2, PerplexityMetric, 3798921.4717, nil, 0},
		{"ppl-ik-all-nan-full.txt", Perplexity, 0, "", 0, ErrNaN, 213},
		{"ppl-ik-nan-interrupted.txt", Perplexity, 0, "", 0, ErrNaN, 19},
		{"ppl-sycl-too-few-tokens-utf16.txt", Perplexity, 0, "", 0, ErrForm, -1},
		{"kld-mainline-2025.txt", Perplexity, 0, "", 0, ErrForm, 0},
		{"kld-selfcheck-nan.txt", Perplexity, 0, "", 0, ErrForm, 0},
		{"mc-b3665-mmlu-f16.txt", Perplexity, 0, "", 0, ErrForm, 0},
		{"kld-mainline-2025.txt", KLDivergence, 7, RMSDeltaP, 0.09178, nil, 0},
		{"kld-selfcheck-nan.txt", KLDivergence, 0, "", 0, ErrTruncated, 28}, // without the statistics of probabilities
		{"kld-ik-summary-trimmed.txt", KLDivergence, 0, "", 0, ErrTruncated, 17},
		{"mc-b3665-mmlu-f16.txt", MultipleChoice, 0, "", 0, ErrTruncated, 19}, // an excerpt, without its tabs
		{"mc-b3665-mmlu-q4_0.txt", MultipleChoice, 0, "", 0, ErrTruncated, 20},
		{"hs-old-format-killed-4980.txt", MultipleChoice, 0, "", 0, ErrForm, -1},
		{"bad-wiki.test.raw-stub.txt", Perplexity, 0, "", 0, ErrForm, 1},
		{"hs-old-format-killed-4980.txt", HellaSwag, 0, "", 0, ErrTruncated, 0},

		{"srv-b5274-kv_cache_unified-cuda.log", KV, 3, KVBytesV, 976 * mib, nil, 0},
		{"srv-b5781-kv_cache_unified-vulkan.log", KV, 4, KVCells, 16384, nil, 0},
		{"srv-hexagon-repack-two-devices.log", KV, 4, KVCells, 8192, nil, 0},
		{"srv-ik-kv_cache_init-mla.log", KV, 1, KVBytes, 1166.62 * mib, nil, 0},
		{"srv-iswa-fullsize-cpu-2026.log", KV, 4, KVCells, 65536, nil, 0},
		{"srv-iswa-metal-2026.log", KV, 4, KVCells, 65536, nil, 0},
		{"srv-hybrid-recurrent-metal-2026.log", KV, 5, RecurrentBytes, 149.62 * mib, nil, 0},
		{"srv-b10488-kv-types-hybrid.log", KV, 0, "", 0, ErrContradiction, 6}, // three servers in one file
		{"srv-fork-metal-default-verbosity.log", KV, 0, "", 0, ErrForm, -1},
		{"srv-hexagon-memory-breakdown.log", KV, 0, "", 0, ErrForm, -1},
	} {
		t.Run(c.file, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(corpus, c.file))
			if err != nil {
				t.Fatal(err)
			}
			ms, err := Decode(c.stage, raw)
			if c.kind != nil {
				var e *DecodeError
				if !errors.Is(err, c.kind) || !errors.As(err, &e) || c.line >= 0 && e.Line != c.line {
					t.Errorf("%v, want kind %q in line %d", err, c.kind, c.line)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			last := ms[len(ms)-1]
			if len(ms) != c.n || last.Metric != c.metric {
				t.Errorf("%d measurements, the last %s, want %d and %s", len(ms), last.Metric, c.n, c.metric)
			}
			within(t, last.Metric, last.Value, c.value, 5e-6*c.value)
		})
	}
}
