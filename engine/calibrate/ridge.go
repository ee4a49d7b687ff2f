package calibrate

import (
	"fmt"
	"math"
	"unsafe"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
	"attnbudget/engine/model"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// moments are the sums over positions from which a branch's output y is regressed on its normed input h.
type moments struct {
	n      float64
	h, y   []float64  // sums
	hh, hy *mat.Dense // sums of h hᵀ and h yᵀ; nil when only means are wanted
	yy     float64    // sum of |y|²
}

func newMoments(embd int, linear bool) *moments {
	m := &moments{h: make([]float64, embd), y: make([]float64, embd)}
	if linear {
		m.hh, m.hy = mat.NewDense(embd, embd, nil), mat.NewDense(embd, embd, nil)
	}
	return m
}

// add takes in rows h and y [n][embd].
func (m *moments) add(h, y []float64) {
	embd := len(m.h)
	n := len(h) / embd
	m.n += float64(n)
	for i := range n {
		for j := range embd {
			m.h[j] += h[i*embd+j]
			v := y[i*embd+j]
			m.y[j] += v
			m.yy += v * v
		}
	}
	if m.hh == nil {
		return
	}
	hm := blas64.General{Rows: n, Cols: embd, Stride: embd, Data: h}
	ym := blas64.General{Rows: n, Cols: embd, Stride: embd, Data: y}
	blas64.Gemm(blas.Trans, blas.NoTrans, 1, hm, hm, 1, m.hh.RawMatrix())
	blas64.Gemm(blas.Trans, blas.NoTrans, 1, hm, ym, 1, m.hy.RawMatrix())
}

// join adds what other has seen.
func (m *moments) join(other *moments) {
	m.n += other.n
	m.yy += other.yy
	for i := range m.h {
		m.h[i] += other.h[i]
		m.y[i] += other.y[i]
	}
	if m.hh != nil {
		m.hh.Add(m.hh, other.hh)
		m.hy.Add(m.hy, other.hy)
	}
}

// means are those of h and y.
func (m *moments) means() (h, y []float64) {
	h, y = make([]float64, len(m.h)), make([]float64, len(m.y))
	for i := range h {
		h[i], y[i] = m.h[i]/m.n, m.y[i]/m.n
	}
	return h, y
}

// centred are the sums of products of deviations from the means.
func (m *moments) centred() (hh *mat.SymDense, hy *mat.Dense) {
	mh, my := m.means()
	e := len(mh)
	hh, hy = mat.NewSymDense(e, nil), mat.NewDense(e, e, nil)
	for i := range e {
		for j := range e {
			if j >= i {
				hh.SetSym(i, j, m.hh.At(i, j)-m.n*mh[i]*mh[j])
			}
			hy.Set(i, j, m.hy.At(i, j)-m.n*mh[i]*my[j])
		}
	}
	return hh, hy
}

// fit is a linear map of rank at most r with a constant: y = u (d h) + b. d [r][embd], u [embd][r]; none of a constant fit.
type fit struct {
	b    []float64
	d, u *mat.Dense
}

// constant is the fit that is best without looking at h.
func (m *moments) constant() fit {
	_, y := m.means()
	return fit{b: y}
}

// ridge is the least-squares fit of rank r with penalty lambda on the squared coefficients, in units of the mean variance of the
// elements of h: reduced-rank ridge regression (Mukherjee and Zhu 2011). The full-rank solution B = (S + lambda I)⁻¹ C, where S and C are
// the centred sums, is projected onto the r leading eigenvectors of Bᵀ(S + lambda I)B = Cᵀ B.
func (m *moments) ridge(r int, lambda float64) (fit, error) {
	s, c := m.centred()
	e := s.SymmetricDim()
	penalty := lambda * mat.Trace(s) / float64(e)
	for i := range e {
		s.SetSym(i, i, s.At(i, i)+penalty)
	}
	var factor mat.Cholesky
	if !factor.Factorize(s) {
		return fit{}, fmt.Errorf("the covariance of a branch's input is singular even with a ridge of %g", lambda)
	}
	var b mat.Dense
	if err := factor.SolveTo(&b, c); err != nil {
		return fit{}, fmt.Errorf("ridge regression: %w", err)
	}
	u, err := leading(c, &b, r)
	if err != nil {
		return fit{}, err
	}
	var d mat.Dense
	d.Mul(u.T(), b.T())
	mh, my := m.means()
	var low, high mat.VecDense
	low.MulVec(&d, mat.NewVecDense(e, mh))
	high.MulVec(u, &low)
	for i := range my {
		my[i] -= high.AtVec(i)
	}
	return fit{b: my, d: &d, u: u}, nil
}

// leading are the r leading eigenvectors of Cᵀ B, columns.
func leading(c, b *mat.Dense, r int) (*mat.Dense, error) {
	var g mat.Dense
	g.Mul(c.T(), b)
	e, _ := g.Dims()
	sym := mat.NewSymDense(e, nil)
	for i := range e {
		for j := i; j < e; j++ {
			sym.SetSym(i, j, (g.At(i, j)+g.At(j, i))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(sym, true) {
		return nil, fmt.Errorf("the eigenvectors of a fit did not converge")
	}
	var v mat.Dense
	eigen.VectorsTo(&v) // ascending eigenvalues
	r = min(r, e)
	u := mat.NewDense(e, r, nil)
	for k := range r {
		for i := range e {
			u.Set(i, k, v.At(i, e-1-k))
		}
	}
	return u, nil
}

// residual is the sum of squared errors of f on the positions in m.
func (m *moments) residual(f fit) float64 {
	e := len(m.h)
	b := mat.NewVecDense(e, f.b)
	sum := m.yy - 2*mat.Dot(b, mat.NewVecDense(e, m.y)) + m.n*mat.Dot(b, b)
	if f.d == nil {
		return sum
	}
	var w, wy, hw, q mat.Dense // w = h's map to y, [embd][embd]
	w.Mul(f.d.T(), f.u.T())
	wy.MulElem(&w, m.hy)
	hw.Mul(m.hh, &w)
	q.MulElem(&w, &hw)
	var wb mat.VecDense
	wb.MulVec(&w, b)
	return sum - 2*mat.Sum(&wy) + mat.Sum(&q) + 2*mat.Dot(&wb, mat.NewVecDense(e, m.h))
}

// explained is the share of the sum of squares of y, which is what dropping the branch loses, that a fit with the given residual
// accounts for. Of a branch that gives nothing, nothing is missing.
func (m *moments) explained(residual float64) float64 {
	if m.yy == 0 {
		return 1
	}
	return 1 - residual/m.yy
}

// ridges are the penalties that are tried.
var ridges = [...]float64{1e-4, 1e-3, 1e-2, 1e-1, 1}

// best fits with the penalty that does best on positions it has not seen, and then on all. explained is the share of the
// sum of squares of those unseen y that the fit accounts for.
func best(seen, unseen *moments, r int) (f fit, explained float64, err error) {
	if seen.hh == nil {
		f = seen.constant()
		explained = unseen.explained(unseen.residual(f))
		seen.join(unseen)
		return seen.constant(), explained, nil
	}
	least, lambda := math.Inf(1), ridges[0]
	for _, l := range ridges {
		f, err := seen.ridge(r, l)
		if err != nil {
			return f, 0, err
		}
		if e := unseen.residual(f); e < least {
			least, lambda = e, l
		}
	}
	share := unseen.explained(least)
	seen.join(unseen)
	f, err = seen.ridge(r, lambda)
	return f, share, err
}

// surrogate is f as the engine wants it.
func (f fit) surrogate() *model.Surrogate {
	s := &model.Surrogate{Bias: make([]float32, len(f.b))}
	for i, v := range f.b {
		s.Bias[i] = float32(v)
	}
	if f.d != nil {
		s.Down, s.Up = matrix(f.d), matrix(f.u)
	}
	return s
}

func matrix(d *mat.Dense) kernel.Matrix {
	rows, cols := d.Dims()
	x := make([]float32, 0, rows*cols)
	for i := range rows {
		for j := range cols {
			x = append(x, float32(d.At(i, j)))
		}
	}
	return kernel.Matrix{Type: gguf.F32, Rows: rows, Cols: cols, Data: floatBytes(x)}
}

func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
