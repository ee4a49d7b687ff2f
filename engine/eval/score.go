package eval

import (
	"context"
	"iter"
	"math"
	"runtime"
	"sync/atomic"

	"attnbudget/engine"
	"attnbudget/engine/kernel/upstream"

	"golang.org/x/sync/errgroup"
)

// Context is what an evaluator needs of an *engine.Context.
type Context interface {
	Decode(ctx context.Context, b *engine.Batch) error
	Logits(i int) []float32
	Clear()
	NBatch() int
	NUBatch() int
}

// query asks for the log-probability of a token after a row of a batch.
type query struct {
	row   int
	token int32
	in    arithmetic
}

// batch collects tokens for a Decode.
type batch struct{ engine.Batch }

// add adds a token. Logits are wanted where upstream wants them, even if nothing is read from them: the kernels of upstream's
// order add up a row in one way or another depending on which rows are computed with it.
func (b *batch) add(token int32, pos int, logits bool, seqs ...int32) {
	b.Tokens = append(b.Tokens, token)
	b.Pos = append(b.Pos, int32(pos))
	b.Logits = append(b.Logits, logits)
	b.Seqs = append(b.Seqs, seqs)
}

// scorer decodes batches and reads log-probabilities.
type scorer struct {
	context Context
	threads int
}

// score decodes b and answers the queries, which must be in ascending order of rows. Values are natural logarithms and may
// be NaN or infinite.
func (s scorer) score(ctx context.Context, b *batch, queries []query) ([]float64, error) {
	rows := make([]int, len(queries))
	for i, q := range queries {
		rows[i] = q.row
	}
	out := make([]float64, len(queries))
	err := s.visit(ctx, b, rows, func(i int, logits []float32) error {
		out[i] = queries[i].in.logProb(logits, queries[i].token)
		return nil
	})
	return out, err
}

// visit decodes b and calls f(i, logits of rows[i]) for every i, from several goroutines. rows ascend and may repeat. The
// context gets what it computes at once anyway, part by part, because the logits of a whole batch can take gigabytes. An error
// of f ends it.
func (s scorer) visit(ctx context.Context, b *batch, rows []int, f func(i int, logits []float32) error) error {
	next := 0
	for from, to := range s.parts(len(b.Tokens)) {
		part := engine.Batch{Tokens: b.Tokens[from:to], Pos: b.Pos[from:to], Seqs: b.Seqs[from:to], Logits: b.Logits[from:to]}
		if err := s.context.Decode(ctx, &part); err != nil {
			return err
		}
		first := next
		for next < len(rows) && rows[next] < to {
			next++
		}
		if err := parallel(s.threads, next-first, func(i int) error {
			return f(first+i, s.context.Logits(rows[first+i]-from))
		}); err != nil {
			return err
		}
	}
	return nil
}

// parts are the physical batches [from, to) of n tokens: those of NUBatch tokens that batches of NBatch are cut into.
func (s scorer) parts(n int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for start := 0; start < n; start += s.context.NBatch() {
			end := min(start+s.context.NBatch(), n)
			for from := start; from < end; from += s.context.NUBatch() {
				if !yield(from, min(from+s.context.NUBatch(), end)) {
					return
				}
			}
		}
	}
}

// arithmetic is how upstream computes a log-probability. Differences and exponentials are always float32.
type arithmetic int

const (
	summedDouble  arithmetic = iota // sum and logarithm in float64
	summedSingle                    // all in float32
	asProbability                   // the logarithm of a probability in float32, of a sum in float64
)

// logProb is the natural logarithm of the softmax of logits at token.
func (a arithmetic) logProb(logits []float32, token int32) float64 {
	top := logits[0]
	for _, l := range logits[1:] {
		top = max(top, l) // NaN wins, and shows in the result
	}
	d := logits[token] - top
	switch a {
	case summedSingle:
		var sum float32
		for _, l := range logits {
			sum += upstream.ScalarExp(l - top)
		}
		return float64(d - upstream.Log(sum))
	case asProbability:
		if p := float32(float64(upstream.ScalarExp(d)) / sumExp(logits, top)); p >= 0x1p-126 { // below that float32 ends, and upstream has -Inf
			return float64(upstream.Log(p))
		}
	}
	return float64(d) - math.Log(sumExp(logits, top))
}

// parallel calls f(0) to f(n-1) from several goroutines and gives one of their errors. After an error no more are begun.
func parallel(threads, n int, f func(i int) error) error {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var next atomic.Int64
	var group errgroup.Group
	for range min(threads, n) {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					next.Store(int64(n))
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// notFinite is the first value that is NaN or infinite.
func notFinite(values []float64) (float64, bool) {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return v, true
		}
	}
	return 0, false
}
