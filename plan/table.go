package plan

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
	MetricChoiceAccuracy      = "multiple_choice_accuracy"
	MetricMeanKLD             = "mean_kld" // Kullback-Leibler divergence of a scored token from the base, nats
	MetricMedianKLD           = "median_kld"
	MetricP99KLD              = "p99_kld"
	MetricMaxKLD              = "max_kld"
	MetricSameTop             = "same_top_p"   // share of tokens where the most probable one is the base's
	MetricMeanDeltaP          = "mean_delta_p" // the true token's probability minus that under the base
	MetricRMSDeltaP           = "rms_delta_p"
)

// Metrics lists all metrics.
func Metrics() []string {
	return []string{
		MetricTokensPerSecond, MetricKVBytes, MetricKVBytesK, MetricKVBytesV, MetricKVCells, MetricRecurrentBytes,
		MetricPerplexity, MetricNLL, MetricHellaSwagAccuracy, MetricWinograndeAccuracy, MetricWinograndeCorrected, MetricChoiceAccuracy,
		MetricMeanKLD, MetricMedianKLD, MetricP99KLD, MetricMaxKLD, MetricSameTop, MetricMeanDeltaP, MetricRMSDeltaP,
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
	case MetricChoiceAccuracy:
		return []string{MultipleChoice}
	case MetricMeanKLD, MetricMedianKLD, MetricP99KLD, MetricMaxKLD, MetricSameTop, MetricMeanDeltaP, MetricRMSDeltaP:
		return []string{KLDivergence}
	}
	return nil
}

// Effects that a table's cells can show beside levels.
const (
	EffectRatio      = "ratio"
	EffectDifference = "difference"
	EffectAuto       = "auto" // UsualEffect of each metric
)

// UsualEffect is how effects on a metric are usually given: accuracies and nll are scales of their own and are
// subtracted, as are divergences, of which the base itself has next to none; everything else is measured from zero and is
// divided.
func UsualEffect(metric string) string {
	switch metric {
	case MetricNLL, MetricHellaSwagAccuracy, MetricWinograndeAccuracy, MetricWinograndeCorrected, MetricChoiceAccuracy,
		MetricMeanKLD, MetricMedianKLD, MetricP99KLD, MetricMaxKLD, MetricSameTop, MetricMeanDeltaP, MetricRMSDeltaP:
		return EffectDifference
	}
	return EffectRatio
}
