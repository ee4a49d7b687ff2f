package eval

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestStridedPerplexityPredictsEveryTokenOnce(t *testing.T) {
	tok := shippedTokenizer(t)
	in := builtinInput(t, "evaluation.txt")
	in.Data = in.Data[:600]
	tokens := tok.Encode(string(bytes.TrimSuffix(in.Data, []byte("\n"))), true, false)
	const nCtx = 24
	for _, stride := range []int{1, 5, 8, nCtx - 1} {
		t.Run(fmt.Sprint(stride), func(t *testing.T) {
			var scored []ScoredToken
			p, err := NewPerplexity(tok, in, PerplexityOptions{NCtx: nCtx, Stride: stride, EachToken: func(s []ScoredToken) error {
				scored = append(scored, s...)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			m := newHashModel(tok.VocabSize(), 64)
			chunks, err := p.Run(t.Context(), m, nil, func(Chunk) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			if want := (len(tokens)-nCtx)/stride + 1; len(chunks) != want || p.Chunks != want {
				t.Fatalf("%d chunks of %d tokens, want %d", len(chunks), len(tokens), want)
			}
			next := nCtx - stride
			for _, s := range scored {
				begin := (s.Chunk - 1) * stride
				at := begin + s.Position
				if at != next || s.Token != tokens[at] {
					t.Fatalf("%+v is token %d of the text, want %d, which is %d", s, at, next, tokens[next])
				}
				next++
				history := slices.Clone(tokens[begin:at])
				history[0] = tok.BOS()
				if want := -m.logProbAfter(history, s.Token); math.Abs(s.NLL-want) > near {
					t.Fatalf("%+v, want %v", s, want)
				}
			}
			if len(tokens)-next >= stride {
				t.Errorf("%d tokens at the end are not predicted", len(tokens)-next)
			}
			sameSums(t, chunks, scored)
		})
	}
}

// sameSums compares chunks with their tokens.
func sameSums(t *testing.T, chunks []Chunk, scored []ScoredToken) {
	t.Helper()
	for _, c := range chunks {
		sum := Chunk{Kind: kindChunk, Chunk: c.Chunk}
		for _, s := range scored {
			if s.Chunk == c.Chunk {
				sum.Tokens++
				sum.NLL += s.NLL
				sum.NLL2 += s.NLL * s.NLL
			}
		}
		if sum != c {
			t.Errorf("chunk %+v, its tokens make %+v", c, sum)
		}
	}
}

func TestTokensAreToldOnceWhateverTheCheckpoint(t *testing.T) {
	tok := shippedTokenizer(t)
	run := func(done []Chunk, base bool) (scored []ScoredToken, chunks []Chunk) {
		p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: 32, Chunks: 5, EachToken: func(s []ScoredToken) error {
			scored = append(scored, s...)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		m := newHashModel(tok.VocabSize(), 512)
		if base {
			chunks, err = p.RunBase(t.Context(), m, &memoryFile{make([]byte, p.LogitsBytes())}, done, func(Chunk) error { return nil })
		} else {
			chunks, err = p.Run(t.Context(), m, done, func(Chunk) error { return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		return scored, chunks
	}
	want, chunks := run(nil, false)
	if len(want) != 5*15 || want[0].Position != 17 || want[14].Position != 31 {
		t.Fatalf("%d tokens, %+v to %+v", len(want), want[0], want[14])
	}
	sameSums(t, chunks, want)
	if got, _ := run(chunks[:3], false); !slices.Equal(got, want[3*15:]) {
		t.Errorf("after a checkpoint of 3 chunks: %v", got)
	}
	if got, withLogits := run(nil, true); len(got) != len(want) {
		t.Errorf("%d tokens beside a logits file", len(got))
	} else {
		sameSums(t, withLogits, got)
	}
}

func TestStridesThatLeaveNothingAreRefused(t *testing.T) {
	tok := shippedTokenizer(t)
	text := builtinInput(t, "evaluation.txt")
	for _, stride := range []int{-1, 32, 100} {
		if _, err := NewPerplexity(tok, text, PerplexityOptions{NCtx: 32, Stride: stride}); err == nil || !strings.Contains(err.Error(), "from 1 to 31") {
			t.Errorf("stride %d: error %v", stride, err)
		}
	}
	p, err := NewPerplexity(tok, text, PerplexityOptions{NCtx: 32, Stride: 8, Chunks: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RunBase(t.Context(), newHashModel(tok.VocabSize(), 64), &memoryFile{}, nil, func(Chunk) error { return nil }); err == nil {
		t.Error("a logits file of overlapping chunks was written")
	}
}

// TestRowsAreUpstreams gives the figures of upstream's log to our printer, as chunks whose sums are worked out from them.
func TestRowsAreUpstreams(t *testing.T) {
	var rows []string
	for line := range strings.Lines(upstreamLog(t, "ppl-F16-type1")) {
		if f := strings.Fields(line); len(f) == 4 && strings.HasPrefix(line, "  ") {
			rows = append(rows, strings.TrimRight(line, "\n"))
		}
	}
	if len(rows) < 100 {
		t.Fatalf("%d rows in the log", len(rows))
	}
	const scored = 255
	var chunks []Chunk
	var nll, nll2 float64
	for i, row := range rows {
		var begin, n = 0, float64((i + 1) * scored)
		var ppl, mean, stderr float64
		if _, err := fmt.Sscan(row, &begin, &ppl, &mean, &stderr); err != nil {
			t.Fatalf("%q: %v", row, err)
		}
		sum, sum2 := mean*n, (stderr*stderr*(n-1)+mean*mean)*n
		chunks = append(chunks, Chunk{kindChunk, i + 1, scored, sum - nll, sum2 - nll2})
		nll, nll2 = sum, sum2
	}
	p := &Perplexity{passages: passages{NCtx: 512}, NBatch: 2048, NSeq: 4, Chunks: len(chunks), rows: true}
	var b bytes.Buffer
	if err := p.Write(&b, chunks); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "  ") {
			got = append(got, strings.TrimRight(line, "\n"))
		}
	}
	if len(got) != len(rows) {
		t.Fatalf("%d rows, upstream %d", len(got), len(rows))
	}
	for i := range rows {
		g, w := strings.Fields(got[i]), strings.Fields(rows[i])
		// The perplexity is not compared to its last digit: it is the exponential of a mean of six decimals.
		if g[0] != w[0] || g[2] != w[2] || g[3] != w[3] || len(got[i]) != len(rows[i]) || strings.Index(got[i], g[1]) != strings.Index(rows[i], w[1]) {
			t.Fatalf("row %d is %q, upstream's %q", i+1, got[i], rows[i])
		}
	}
}
