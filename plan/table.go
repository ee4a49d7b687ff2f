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

// Metrics that a table's cells can show.
const (
	MetricTokensPerSecond = "tokens_per_second"
	MetricKVBytes         = "kv_bytes"
	MetricPerplexity      = "perplexity"
	MetricAccuracy        = "accuracy"           // share of tasks answered rightly, by upstream's rule
	MetricCorrected       = "corrected_accuracy" // winogrande by the rule as it was meant
)

// Metrics lists all metrics.
func Metrics() []string {
	return []string{MetricTokensPerSecond, MetricKVBytes, MetricPerplexity, MetricAccuracy, MetricCorrected}
}

// MetricStages lists the kinds of stages whose units yield a metric; nil for an unknown one.
func MetricStages(metric string) []string {
	switch metric {
	case MetricTokensPerSecond:
		return []string{Throughput, Depth}
	case MetricKVBytes:
		return []string{KV}
	case MetricPerplexity:
		return []string{Perplexity}
	case MetricAccuracy:
		return []string{HellaSwag, Winogrande}
	case MetricCorrected:
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
