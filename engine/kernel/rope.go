package kernel

import (
	"math"
	"sync"

	"attnbudget/engine/kernel/upstream"
)

// RoPE rotates pairs of a head's elements by angles proportional to the position (rotary position embedding).
type RoPE struct {
	nRot    int
	ratio   float32 // θ of one pair over θ of the pair before
	scale   float32
	factors []float32
	neox    bool
	slots   [ropeSlots]ropeSlot
}

// ropeSlots positions are remembered: as many as a physical batch usually has tokens. All layers rotate the same ones.
const ropeSlots = 512

// ropeSlot holds the cosines and sines of one position; position p lives in slot p mod ropeSlots.
type ropeSlot struct {
	sync.RWMutex
	made     bool
	pos      int32
	cos, sin []float32 // [nRot/2]
}

// NewRoPE makes the rotation of the first nRot elements of a head. Pair i turns by pos * base^(-2i/nRot) / factors[i] *
// freqScale; nil factors mean ones. A pair is (i, i+nRot/2) if neox, else (2i, 2i+1).
func NewRoPE(nRot int, base, freqScale float32, factors []float32, neox bool) *RoPE {
	if factors != nil && len(factors) < nRot/2 {
		panic("kernel: NewRoPE: fewer factors than pairs")
	}
	ratio := float32(math.Pow(float64(base), float64(float32(-2)/float32(nRot))))
	return &RoPE{nRot: nRot, ratio: ratio, scale: freqScale, factors: factors, neox: neox}
}

// Apply rotates the heads of one token at position pos: x [heads][dim], in place. Elements from nRot on stay as they are.
// Several goroutines may call it at once.
func (r *RoPE) Apply(x []float32, heads, dim int, pos int32) {
	s := r.slot(pos)
	defer s.RUnlock()
	for h := range heads {
		if head := x[h*dim:][:r.nRot]; r.neox {
			active.rotateHalves(head, s.cos, s.sin)
		} else {
			active.rotatePairs(head, s.cos, s.sin)
		}
	}
}

func rotateHalves(x, cos, sin []float32) {
	a, b := x[:len(cos)], x[len(cos):][:len(cos)]
	for i, c := range cos {
		a[i], b[i] = upstream.Rotate(a[i], b[i], sin[i], c)
	}
}

func rotatePairs(x, cos, sin []float32) {
	x = x[:2*len(cos)]
	for i, c := range cos {
		x[2*i], x[2*i+1] = upstream.Rotate(x[2*i], x[2*i+1], sin[i], c)
	}
}

// slot returns the slot of pos, filled and locked for reading.
func (r *RoPE) slot(pos int32) *ropeSlot {
	s := &r.slots[uint32(pos)%ropeSlots]
	for {
		s.RLock()
		if s.made && s.pos == pos {
			return s
		}
		s.RUnlock()
		s.Lock()
		if !s.made || s.pos != pos {
			r.fill(s, pos)
		}
		s.Unlock()
	}
}

// fill computes the angles the way upstream does: θ is multiplied by the ratio from pair to pair in float32, because a
// power per pair would differ in the last bits, and these are amplified by large positions.
func (r *RoPE) fill(s *ropeSlot, pos int32) {
	s.cos, s.sin = grow(s.cos, r.nRot/2), grow(s.sin, r.nRot/2)
	theta := float32(pos)
	for i := range s.cos {
		angle := theta
		if r.factors != nil {
			angle /= r.factors[i]
		}
		s.sin[i], s.cos[i] = upstream.Sincos(angle * r.scale)
		theta *= r.ratio
	}
	s.made, s.pos = true, pos
}
