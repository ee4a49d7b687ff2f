package eval

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"

	"attnbudget/engine"

	"golang.org/x/sync/errgroup"
)

// Context is what an evaluator needs of an *engine.Context.
type Context interface {
	Decode(ctx context.Context, b *engine.Batch) error
	Logits(i int) []float32
	Clear()
	NUBatch() int
}

// query asks for the log-probability of a token after a row of a batch.
type query struct {
	row    int
	token  int32
	single bool // sum the probabilities in float32, as upstream's task evaluators do
}

// batch collects tokens for a Decode; its logits are asked for by queries.
type batch struct{ engine.Batch }

func (b *batch) add(token int32, pos int, seqs ...int32) {
	b.Tokens = append(b.Tokens, token)
	b.Pos = append(b.Pos, int32(pos))
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
		out[i] = logProb(logits, queries[i].token, queries[i].single)
		return nil
	})
	return out, err
}

// visit decodes b and calls f(i, logits of rows[i]) for every i, from several goroutines. rows ascend and may repeat. The
// context gets what it computes at once anyway, part by part, because the logits of a whole batch can take gigabytes. An error
// of f ends it.
func (s scorer) visit(ctx context.Context, b *batch, rows []int, f func(i int, logits []float32) error) error {
	b.Logits = make([]bool, len(b.Tokens))
	for _, row := range rows {
		b.Logits[row] = true
	}
	next, size := 0, s.context.NUBatch()
	for from := 0; from < len(b.Tokens); from += size {
		to := min(from+size, len(b.Tokens))
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

// logProb is the natural logarithm of the softmax of logits at token. As upstream, differences and exponentials are
// float32; their sum is float64, or float32 if single.
func logProb(logits []float32, token int32, single bool) float64 {
	top := logits[0]
	for _, l := range logits[1:] {
		top = max(top, l) // NaN wins, and shows in the result
	}
	if single {
		var sum float32
		for _, l := range logits {
			sum += float32(math.Exp(float64(l - top)))
		}
		return float64(logits[token] - top - float32(math.Log(float64(sum))))
	}
	return float64(logits[token]-top) - math.Log(sumExp(logits, top))
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
