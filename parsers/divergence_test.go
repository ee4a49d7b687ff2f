package parsers

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// divergenceOutput is what the embedded engine prints for two chunks of so many tokens.
func divergenceOutput(tokens int) string {
	var b, table strings.Builder
	fmt.Fprintf(&b, "kl_divergence: computing over 2 chunks, n_ctx=%d, batch_size=2048, n_seq=4\n", 2*tokens+1)
	table.WriteString("chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            Same top p\n")
	var klds []float64
	var n, nll, base, kld, kld2, dp, dp2, top float64
	for chunk := range 2 {
		var values, deltas []string
		var k, k2, d, d2, d4 float64
		for i := range tokens {
			v, p := float64(float32(0.001*float64(1+(7*i+3*chunk)%tokens))), float64(float32(0.01*math.Sin(float64(i+chunk))))
			k, k2, d, d2, d4 = k+v, k2+v*v, d+p, d2+p*p, d4+p*p*p*p
			klds = append(klds, v)
			values, deltas = append(values, fmt.Sprint(float32(v))), append(deltas, fmt.Sprint(float32(p)))
		}
		same := tokens - 3 - chunk
		n, nll, base = n+float64(tokens), nll+3.25*float64(tokens), base+3.2*float64(tokens)
		kld, kld2, dp, dp2, top = kld+k, kld2+k2, dp+d, dp2+d2, top+float64(same)
		fmt.Fprintf(&b, `{"kind":"kl_chunk","chunk":%d,"tokens":%d,"nll":%v,"nll2":%v,"nll_base":%v,"nll_base2":%v,"nll_nll_base":%v,`+
			`"kld":%v,"kld2":%v,"p_diff":%v,"p_diff2":%v,"p_diff4":%v,"same_top":%d,"kld_values":[%s],"p_diff_values":[%s]}`+"\n",
			chunk+1, tokens, 3.25*float64(tokens), 12*float64(tokens), 3.2*float64(tokens), 12*float64(tokens), 12*float64(tokens),
			k, k2, d, d2, d4, same, strings.Join(values, ","), strings.Join(deltas, ","))
		fmt.Fprintf(&table, "%4d    %9.4f ±    0.1000    %10.5f ±       -nan    %10.5f ±    0.00100    %6.3f ±  0.100 %%    %6.3f ±  0.100 %%\n",
			chunk+1, math.Exp(nll/n), (nll-base)/n, kld/n, 100*math.Sqrt(dp2/n), 100*top/n)
	}
	b.WriteString(table.String())
	if n < 100 {
		return b.String()
	}
	slices.Sort(klds)
	at := 0.99 * (n - 1)
	i := int(at)
	fmt.Fprintf(&b, "====== Perplexity statistics ======\nMean PPL(Q)                   : %10.6f ±   0.100000\n", math.Exp(nll/n))
	fmt.Fprintf(&b, "====== KL divergence statistics ======\nMean    KLD: %10.6f ±   0.001000\nMaximum KLD: %10.6f\n", kld/n, klds[len(klds)-1])
	fmt.Fprintf(&b, "99.0%%   KLD: %10.6f\nMedian  KLD: %10.6f\n", klds[i]+(at-float64(i))*(klds[i+1]-klds[i]), (klds[len(klds)/2]+klds[len(klds)/2-1])/2)
	fmt.Fprintf(&b, "====== Token probability statistics ======\nMean    Δp: %6.3f ± 0.100 %%\nRMS Δp    : %6.3f ± 0.100 %%\nSame top p: %6.3f ± 0.100 %%\n",
		100*dp/n, 100*math.Sqrt(dp2/n), 100*top/n)
	return b.String()
}

func TestDivergencesAreComputedFromChunks(t *testing.T) {
	const tokens = 60
	ms := decode(t, KLDivergence, divergenceOutput(tokens))
	if len(ms) != 7 {
		t.Fatalf("%d metrics", len(ms))
	}
	within(t, "mean", ms[MeanKLD].Value, 0.001*(tokens+1)/2, 1e-8)
	within(t, "median", ms[MedianKLD].Value, 0.001*(tokens+1)/2, 1e-8)
	within(t, "maximum", ms[MaxKLD].Value, 0.001*tokens, 1e-8)
	within(t, "99 %", ms[P99KLD].Value, 0.0594+0.0005, 5e-4)
	within(t, "same top", ms[SameTop].Value, (2*tokens-7.0)/(2*tokens), 1e-12)
	within(t, "rms", ms[RMSDeltaP].Value, 0.01/math.Sqrt2, 1e-4)
	variance := 0.0
	for i := range tokens {
		variance += math.Pow(0.001*(float64(i+1)-(tokens+1)/2.0), 2) / tokens
	}
	within(t, "error of the mean", *ms[MeanKLD].StdErr, math.Sqrt(variance/(2*tokens-1)), 1e-8)
	// Of the squares s² the mean is rms², and the error of a root is that of its square over twice the root.
	var squares, fourths float64
	for chunk := range 2 {
		for i := range tokens {
			p := float64(float32(0.01 * math.Sin(float64(i+chunk))))
			squares, fourths = squares+p*p/(2*tokens), fourths+p*p*p*p/(2*tokens)
		}
	}
	within(t, "error of rms", *ms[RMSDeltaP].StdErr, math.Sqrt((fourths-squares*squares)/(2*tokens-1))/(2*math.Sqrt(squares)), 1e-9)
	for _, metric := range []string{MeanKLD, SameTop, MeanDeltaP, RMSDeltaP} {
		m, sum := ms[metric], 0.0
		for _, c := range m.Chunks {
			sum += c.Sum
		}
		mean := sum / (2 * tokens)
		if metric == RMSDeltaP {
			mean = math.Sqrt(mean)
		}
		if len(m.Chunks) != 2 || m.Rounding != 0 || math.Abs(mean-m.Value) > 1e-12 {
			t.Errorf("%s: %v, its chunks give %v: %+v", metric, m.Value, mean, m.Chunks)
		}
	}
	if short := decode(t, KLDivergence, divergenceOutput(40)); short[MaxKLD].Value != float64(float32(0.04)) {
		t.Errorf("80 tokens, of which upstream prints no statistics: %+v", short[MaxKLD])
	}
}

func TestUpstreamsDivergencesAreThoseOfItsStatistics(t *testing.T) {
	raw, err := os.ReadFile("testdata/upstream/llama-perplexity-kld-Q4_0.log")
	if err != nil {
		t.Fatal(err)
	}
	ms := decode(t, KLDivergence, string(raw))
	for metric, want := range map[string]float64{MeanKLD: 0.007112, MedianKLD: 0.004909, P99KLD: 0.037124, MaxKLD: 0.357639, SameTop: 0.93422, MeanDeltaP: -0.00205, RMSDeltaP: 0.01938} {
		if m := ms[metric]; math.Abs(m.Value-want) > 1e-12 || m.Rounding == 0 || m.Chunks != nil {
			t.Errorf("%s: %+v, want %v and its rounding", metric, m, want)
		}
	}
	wrong := strings.Replace(string(raw), "  40      24.5847 ±    0.6161       0.00791 ±    0.00120       0.00711", "  40      24.5847 ±    0.6161       0.00791 ±    0.00120       0.00811", 1)
	if _, err := Decode(KLDivergence, []byte(wrong)); !errors.Is(err, ErrContradiction) {
		t.Errorf("a table that ends with another divergence than the statistics: %v", err)
	}
}

func TestChoicesHaveTheirChance(t *testing.T) {
	m := decode(t, MultipleChoice, choiceOutput)[ChoiceAccuracy]
	within(t, "accuracy", m.Value, 2.0/3, 1e-12)
	within(t, "chance", m.Chance, (0.25+0.5+0.25)/3, 1e-12)
	if a := m.Answers; len(a) != 3 || !a[1].Correct || a[2].Correct || a[2].Hash != "0000000000000100" {
		t.Errorf("%+v", m.Answers)
	}
	log, err := os.ReadFile("testdata/upstream/llama-perplexity-multiple-choice-F16.log")
	if err != nil {
		t.Fatal(err)
	}
	if m := decode(t, MultipleChoice, string(log))[ChoiceAccuracy]; len(m.Answers) != 200 || m.Value != 0.29 {
		t.Errorf("upstream's: %v of %d", m.Value, len(m.Answers))
	}
}
