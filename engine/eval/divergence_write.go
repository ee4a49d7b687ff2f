package eval

import (
	"io"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// divergenceSums adds chunks up.
type divergenceSums struct {
	DivergenceChunk
}

func (s *divergenceSums) add(c DivergenceChunk) {
	s.Tokens += c.Tokens
	s.NLL += c.NLL
	s.NLL2 += c.NLL2
	s.NLLBase += c.NLLBase
	s.NLLBase2 += c.NLLBase2
	s.NLLProduct += c.NLLProduct
	s.KLD += c.KLD
	s.KLD2 += c.KLD2
	s.DeltaP += c.DeltaP
	s.DeltaP2 += c.DeltaP2
	s.DeltaP4 += c.DeltaP4
	s.SameTop += c.SameTop
}

// estimate is a value with its standard error.
type estimate struct{ value, err float64 }

// mean of n values of which the sum and the sum of squares are given.
func mean(sum, sum2 float64, n int) estimate {
	m := sum / float64(n)
	variance := sum2/float64(n) - m*m
	if variance <= 0 || n <= 10 {
		return estimate{m, 0}
	}
	return estimate{m, math.Sqrt(variance / float64(n-1))}
}

// exp of an estimate; its error by the derivative.
func (e estimate) exp() estimate { return estimate{math.Exp(e.value), math.Exp(e.value) * e.err} }

func (s *divergenceSums) logPPL() estimate     { return mean(s.NLL, s.NLL2, s.Tokens) }
func (s *divergenceSums) logPPLBase() estimate { return mean(s.NLLBase, s.NLLBase2, s.Tokens) }

// covariance of the two means.
func (s *divergenceSums) covariance() float64 {
	if s.Tokens < 10 {
		return 0
	}
	n := float64(s.Tokens)
	return (s.NLLProduct/n - s.NLL/n*s.NLLBase/n) / (n - 1)
}

// logRatio is ln(PPL/PPL of the base), paired token by token. Of a model against itself rounding may make the variance
// negative; it is 0 then, where upstream prints nan.
func (s *divergenceSums) logRatio() estimate {
	q, b := s.logPPL(), s.logPPLBase()
	return estimate{q.value - b.value, math.Sqrt(max(0, q.err*q.err+b.err*b.err-2*s.covariance()))}
}

func (s *divergenceSums) rmsDeltaP() estimate {
	mse := mean(s.DeltaP2, s.DeltaP4, s.Tokens)
	rms := math.Sqrt(mse.value)
	if rms == 0 {
		return estimate{}
	}
	return estimate{rms, 0.5 / rms * mse.err}
}

func (s *divergenceSums) sameTop() estimate {
	p := float64(s.SameTop) / float64(s.Tokens)
	return estimate{p, math.Sqrt(p * (1 - p) / float64(s.Tokens-1))}
}

// Doubts are reasons not to believe the result, for people.
func (d *Divergence) Doubts(chunks []DivergenceChunk) []string {
	var s divergenceSums
	for _, c := range chunks {
		s.add(c)
	}
	return beyondVocabulary(s.logPPL().exp().value, d.layout.vocab)
}

// Write prints the finished chunks: their JSON lines, upstream's running table and, from 100 tokens on, its statistics, to which
// errors clustered by chunk are added.
func (d *Divergence) Write(w io.Writer, chunks []DivergenceChunk) error {
	o := &printer{w: w}
	o.printf("kl_divergence: computing over %d chunks, n_ctx=%d, batch_size=%d, n_seq=%d\n", d.Chunks, d.NCtx, d.NBatch, d.NSeq)
	for _, c := range chunks {
		o.json(c)
	}
	var s divergenceSums
	var klds, deltas []float32
	o.printf("chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            Same top p\n")
	for i, c := range chunks {
		s.add(c)
		klds, deltas = append(klds, c.KLDs...), append(deltas, c.DeltaPs...)
		ppl, ratio, kld := s.logPPL().exp(), s.logRatio(), mean(s.KLD, s.KLD2, s.Tokens)
		rms, top := s.rmsDeltaP(), s.sameTop()
		o.printf("%4d    %9.4f ± %9.4f    %10.5f ± %10.5f    %10.5f ± %10.5f    %6.3f ± %6.3f %%    %6.3f ± %6.3f %%\n", i+1,
			ppl.value, ppl.err, ratio.value, ratio.err, kld.value, kld.err, 100*rms.value, 100*rms.err, 100*top.value, 100*top.err)
	}
	if s.Tokens < 100 {
		return o.err
	}
	slices.Sort(klds)
	slices.Sort(deltas)
	o.printf("====== Perplexity statistics ======\n")
	o.perplexities(&s)
	o.printf("====== KL divergence statistics ======\n")
	o.divergences(&s, klds)
	o.printf("====== Token probability statistics ======\n")
	o.probabilities(&s, deltas)
	if len(chunks) > 1 {
		o.printf("====== Errors clustered by chunk ======\n")
		o.clustered(&s, chunks)
	}
	return o.err
}

func (o *printer) perplexities(s *divergenceSums) {
	q, b, ratio := s.logPPL(), s.logPPLBase(), s.logRatio()
	ppl, base, quotient := q.exp(), b.exp(), ratio.exp()
	o.printf("Mean PPL(Q)                   : %10.6f ± %10.6f\n", ppl.value, ppl.err)
	o.printf("Mean PPL(base)                : %10.6f ± %10.6f\n", base.value, base.err)
	o.printf("Cor(ln(PPL(Q)), ln(PPL(base))): %6.2f%%\n", 100*s.covariance()/(q.err*b.err))
	o.printf("Mean ln(PPL(Q)/PPL(base))     : %10.6f ± %10.6f\n", ratio.value, ratio.err)
	o.printf("Mean PPL(Q)/PPL(base)         : %10.6f ± %10.6f\n", quotient.value, quotient.err)
	err := math.Sqrt(max(0, ppl.err*ppl.err+base.err*base.err-2*ppl.value*base.value*s.covariance()))
	o.printf("Mean PPL(Q)-PPL(base)         : %10.6f ± %10.6f\n", ppl.value-base.value, err)
}

func (o *printer) divergences(s *divergenceSums, sorted []float32) {
	kld := mean(s.KLD, s.KLD2, s.Tokens)
	o.printf("Mean    KLD: %10.6f ± %10.6f\n", kld.value, kld.err)
	o.printf("Maximum KLD: %10.6f\n", sorted[len(sorted)-1])
	for _, p := range []float32{0.999, 0.99, 0.95, 0.9} {
		o.printf("%4.1f%%   KLD: %10.6f\n", 100*p, percentile(sorted, p))
	}
	o.printf("Median  KLD: %10.6f\n", median(sorted))
	for _, p := range []float32{0.1, 0.05, 0.01, 0.001} {
		o.printf("%4.1f%%   KLD: %10.6f\n", 100*p, percentile(sorted, p))
	}
	o.printf("Minimum KLD: %10.6f\n", sorted[0])
}

func (o *printer) probabilities(s *divergenceSums, sorted []float32) {
	delta := mean(s.DeltaP, s.DeltaP2, s.Tokens)
	o.printf("Mean    Δp: %6.3f ± %5.3f %%\n", 100*delta.value, 100*delta.err)
	o.printf("Maximum Δp: %6.3f%%\n", 100*float64(sorted[len(sorted)-1]))
	for _, p := range []float32{0.999, 0.99, 0.95, 0.9, 0.75} {
		o.printf("%4.1f%%   Δp: %6.3f%%\n", 100*p, 100*float64(percentile(sorted, p)))
	}
	o.printf("Median  Δp: %6.3f%%\n", 100*float64(median(sorted)))
	for _, p := range []float32{0.25, 0.1, 0.05, 0.01, 0.001} {
		o.printf("%4.1f%%   Δp: %6.3f%%\n", 100*p, 100*float64(percentile(sorted, p)))
	}
	o.printf("Minimum Δp: %6.3f%%\n", 100*float64(sorted[0]))
	rms, top := s.rmsDeltaP(), s.sameTop()
	o.printf("RMS Δp    : %6.3f ± %5.3f %%\n", 100*rms.value, 100*rms.err)
	o.printf("Same top p: %6.3f ± %5.3f %%\n", 100*top.value, 100*top.err)
}

// clustered prints the means again with errors that do not take the tokens of a chunk as independent, of each other and of their
// document: the standard deviation of the chunks' means over the root of their number (Miller 2024, arXiv 2411.00640; chunks have
// equally many tokens). The design effect is the square of that error in units of the one over tokens.
func (o *printer) clustered(s *divergenceSums, chunks []DivergenceChunk) {
	over := func(sum func(c DivergenceChunk) float64) estimate {
		means := make([]float64, len(chunks))
		for i, c := range chunks {
			means[i] = sum(c) / float64(c.Tokens)
		}
		mean, deviation := stat.MeanStdDev(means, nil)
		return estimate{mean, deviation / math.Sqrt(float64(len(chunks)))}
	}
	square, rms := over(func(c DivergenceChunk) float64 { return c.DeltaP2 }), s.rmsDeltaP()
	if rms.value > 0 {
		square.err *= 0.5 / rms.value // of a square root
	}
	for _, l := range []struct {
		name, unit string
		scale      float64
		chunk      estimate
		token      estimate
	}{
		{"ln(PPL(Q)/PPL(base))", "", 1, over(func(c DivergenceChunk) float64 { return c.NLL - c.NLLBase }), s.logRatio()},
		{"KLD", "", 1, over(func(c DivergenceChunk) float64 { return c.KLD }), mean(s.KLD, s.KLD2, s.Tokens)},
		{"Δp", " %", 100, over(func(c DivergenceChunk) float64 { return c.DeltaP }), mean(s.DeltaP, s.DeltaP2, s.Tokens)},
		{"RMS Δp", " %", 100, estimate{rms.value, square.err}, rms},
		{"Same top p", " %", 100, over(func(c DivergenceChunk) float64 { return float64(c.SameTop) }), s.sameTop()},
	} {
		o.printf("%-20s by chunk: %10.6f ± %10.6f%s", l.name, l.scale*l.chunk.value, l.scale*l.chunk.err, l.unit)
		if ratio := l.chunk.err / l.token.err; l.token.err > 0 {
			o.printf(", design effect %.2f", ratio*ratio)
		}
		o.printf("\n")
	}
}

func median(sorted []float32) float32 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return 0.5 * (sorted[n/2] + sorted[n/2-1])
}

// percentile interpolates between neighbours (Hyndman and Fan 1996, type 7), in float32 as upstream.
func percentile(sorted []float32, fraction float32) float32 {
	at := fraction * float32(len(sorted)-1)
	i := int(at)
	at -= float32(i)
	return (1-at)*sorted[i] + at*sorted[min(i+1, len(sorted)-1)]
}
