package parsers

import "math"

// Metrics.
const (
	TokensPerSecond    = "tokens_per_second"
	NLL                = "nll"        // mean negative log-likelihood per scored token
	PerplexityMetric   = "perplexity" // exp of it
	HellaSwagAccuracy  = "hellaswag_accuracy"
	WinograndeAccuracy = "winogrande_accuracy"           // by upstream's rule, with its known defect
	WinograndeFixed    = "winogrande_accuracy_corrected" // by the rule as it was meant
	ChoiceAccuracy     = "multiple_choice_accuracy"
	MeanKLD            = "mean_kld" // Kullback-Leibler divergence of a scored token from the base
	MedianKLD          = "median_kld"
	P99KLD             = "p99_kld"
	MaxKLD             = "max_kld"
	SameTop            = "same_top_p"   // share of tokens where the most probable one is the base's
	MeanDeltaP         = "mean_delta_p" // the true token's probability minus that under the base
	RMSDeltaP          = "rms_delta_p"
	KVBytes            = "kv_bytes"
	KVBytesK           = "kv_bytes_k"
	KVBytesV           = "kv_bytes_v"
	KVCells            = "kv_cells"        // summed over caches
	RecurrentBytes     = "recurrent_bytes" // state of recurrent layers, not part of kv_bytes
)

// Units.
const (
	UnitTokensPerSecond = "tokens/s"
	UnitNats            = "nats"
	UnitNone            = "1"
	UnitFraction        = "fraction" // 0 to 1
	UnitBytes           = "bytes"
	UnitCells           = "cells"
)

// Measurement is one number read out of an output, with what the output says about it.
type Measurement struct {
	Metric   string            `json:"metric"`
	Unit     string            `json:"unit"`
	Value    float64           `json:"value"`
	StdErr   *float64          `json:"std_err,omitempty"`  // standard error of Value over its items taken as independent; nil: the output does not determine it
	StdDev   *float64          `json:"std_dev,omitempty"`  // sample standard deviation of Samples, also where only that is printed; nil: unknown
	Rounding float64           `json:"rounding,omitempty"` // Value is this close to what was measured; 0: all digits
	Samples  []float64         `json:"samples,omitempty"`
	Chunks   []Chunk           `json:"chunks,omitempty"`  // of nll and of the means of kl-divergence
	Answers  []Answer          `json:"answers,omitempty"` // of accuracies
	Chance   float64           `json:"chance,omitempty"`  // expected accuracy of guessing, where it depends on the tasks; 0: the output does not say
	Counted  *Counted          `json:"counted,omitempty"` // of tokens_per_second; nil: the output does not say
	Labels   map[string]string `json:"labels,omitempty"`  // what else the output says about it, by its own field names
}

// Chunk is one scored window of a text.
type Chunk struct {
	Index    int      `json:"index"`              // from 1
	Tokens   int      `json:"tokens"`             // scored
	Sum      float64  `json:"sum"`                // over the tokens, of what Measurement.Value is the mean of; of rms_delta_p the squares
	Sum2     *float64 `json:"sum2,omitempty"`     // of the squares; nil: the output does not say
	Rounding float64  `json:"rounding,omitempty"` // Sum is this close to what was computed; 0: all digits
}

// Answer is the outcome of one task.
type Answer struct {
	N       int      `json:"n"`              // place in the output, from 1
	Task    *int     `json:"task,omitempty"` // place in the task file, from 0; nil: the output does not say
	Hash    string   `json:"hash,omitempty"` // of the task's text; empty: the output does not say
	Correct bool     `json:"correct"`
	Margin  *float64 `json:"margin,omitempty"` // score of the right answer minus the best other, nats; nil: unknown
}

func ptr[T any](v T) *T { return &v }

// finite refuses measurements with a number that is none.
func finite(ms []Measurement) error {
	for _, m := range ms {
		numbers := append([]float64{m.Value, m.Rounding}, m.Samples...)
		for _, p := range []*float64{m.StdErr, m.StdDev} {
			if p != nil {
				numbers = append(numbers, *p)
			}
		}
		for _, c := range m.Chunks {
			numbers = append(numbers, c.Sum, c.Rounding)
		}
		for _, a := range m.Answers {
			if a.Margin != nil {
				numbers = append(numbers, *a.Margin)
			}
		}
		for _, v := range numbers {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return &DecodeError{Kind: ErrNaN, Expected: "finite numbers for " + m.Metric, Found: formatFloat(v)}
			}
		}
	}
	return nil
}

// accuracy is the measurement of answers.
func accuracy(metric string, answers []Answer) Measurement {
	n := float64(len(answers))
	p := float64(correctOf(answers)) / n
	m := Measurement{Metric: metric, Unit: UnitFraction, Value: p, Answers: answers}
	if len(answers) > 1 {
		m.StdErr = ptr(math.Sqrt(p * (1 - p) / (n - 1)))
	}
	return m
}
