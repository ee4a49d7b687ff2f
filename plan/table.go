package plan

// Dimension names a property of a unit that tables can be laid out by.
const (
	DimModel     = "model"
	DimFormat    = "format"
	DimMask      = "mask"
	DimKV        = "kv"  // KVName of the arm's cache types
	DimArm       = "arm" // Arm.Name
	DimStage     = "stage"
	DimCondition = "condition" // Condition.Name
	DimPrompt    = "prompt"
	DimGenerate  = "generate"
	DimDepth     = "depth"
	DimContext   = "context"
)

// Dimensions lists all dimensions, those of arms first.
func Dimensions() []string {
	return []string{DimModel, DimFormat, DimMask, DimKV, DimArm, DimStage, DimCondition, DimPrompt, DimGenerate, DimDepth, DimContext}
}

// Metrics that a table's cells can show, by the names that the parsers give them.
const (
	MetricTokensPerSecond     = "tokens_per_second"
	MetricKVBytes             = "kv_bytes"
	MetricKVBytesK            = "kv_bytes_k"
	MetricKVBytesV            = "kv_bytes_v"
	MetricKVCells             = "kv_cells"
	MetricRecurrentBytes      = "recurrent_bytes" // state of recurrent layers, not part of kv_bytes
	MetricPerplexity          = "perplexity"
	MetricNLL                 = "nll" // mean negative log-likelihood of a scored token, nats
	MetricHellaSwagAccuracy   = "hellaswag_accuracy"
	MetricWinograndeAccuracy  = "winogrande_accuracy"           // by upstream's rule
	MetricWinograndeCorrected = "winogrande_accuracy_corrected" // by the rule as it was meant
)

// Metrics lists all metrics.
func Metrics() []string {
	return []string{
		MetricTokensPerSecond, MetricKVBytes, MetricKVBytesK, MetricKVBytesV, MetricKVCells, MetricRecurrentBytes,
		MetricPerplexity, MetricNLL, MetricHellaSwagAccuracy, MetricWinograndeAccuracy, MetricWinograndeCorrected,
	}
}

// MetricStages lists the kinds of stages whose units yield a metric; nil for an unknown one.
func MetricStages(metric string) []string {
	switch metric {
	case MetricTokensPerSecond:
		return []string{Throughput, Depth}
	case MetricKVBytes, MetricKVBytesK, MetricKVBytesV, MetricKVCells, MetricRecurrentBytes:
		return []string{KV}
	case MetricPerplexity, MetricNLL:
		return []string{Perplexity}
	case MetricHellaSwagAccuracy:
		return []string{HellaSwag}
	case MetricWinograndeAccuracy, MetricWinograndeCorrected:
		return []string{Winogrande}
	}
	return nil
}

// Effects that a table's cells can show instead of levels.
const (
	EffectRatio      = "ratio"
	EffectDifference = "difference"
)

// KVName is how a pair of cache types is written: "f16" when both are the same, "q8_0/f16" (K first) otherwise.
func KVName(typeK, typeV string) string {
	if typeK == typeV {
		return typeK
	}
	return typeK + "/" + typeV
}

// KV is the arm's pair of cache types as KVName writes it.
func (a Arm) KV() string { return KVName(a.TypeK, a.TypeV) }
