package synth

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// A source makes random blocks of one type whose weights have one standard deviation and a mean of about 0. The quants are
// random bits; scales and minima are set so that the spread comes out and the range of each sub-block is centred, which is
// what a quantiser makes of normal weights.
type source struct {
	t     gguf.Type
	scale float64  // weights per quant, or of the floats: half the range
	table []uint16 // half precision weights to draw from
}

// spread is the standard deviation of a weight of scale 1 whose quant bits are uniform: levels of q are uniform integers,
// k-quant sub-scales of b bits have a root mean square of rms(b).
func spread(t gguf.Type) float64 {
	uniform := func(levels float64) float64 { return math.Sqrt((levels*levels - 1) / 12) }
	rms := func(bits int) float64 { // of 0 .. 2^bits-1
		n := math.Exp2(float64(bits))
		return math.Sqrt((n - 1) * (2*n - 1) / 6)
	}
	signed := func(half float64) float64 { return math.Sqrt((2*half*half + 1) / 6) } // of -half .. half-1
	switch t {
	case gguf.F32, gguf.F16, gguf.BF16:
		return 1 / math.Sqrt(3)
	case gguf.Q4_0, gguf.Q4_1:
		return uniform(16)
	case gguf.Q5_0, gguf.Q5_1:
		return uniform(32)
	case gguf.Q8_0:
		return uniform(256)
	case gguf.Q2_K:
		return rms(4) * uniform(4)
	case gguf.Q3_K:
		return signed(32) * signed(4)
	case gguf.Q4_K:
		return rms(6) * uniform(16)
	case gguf.Q5_K:
		return rms(6) * uniform(32)
	case gguf.Q6_K:
		return signed(128) * signed(32)
	case gguf.IQ4_NL:
		return iq4Spread
	case gguf.IQ4_XS:
		return signed(32) * iq4Spread
	}
	panic("synth: no random weights of type " + t.String())
}

// iq4Spread is the root mean square of the 16 levels of the IQ4 formats.
const iq4Spread = 68.7

func newSource(t gguf.Type, deviation float64) *source {
	s := &source{t: t, scale: deviation / spread(t)}
	var convert func(float32) uint16
	switch t {
	case gguf.F16:
		convert = quant.FloatToHalf
	case gguf.BF16:
		convert = quant.FloatToBF16
	default:
		return s
	}
	s.table = make([]uint16, 4096)
	for i := range s.table {
		s.table[i] = convert(float32(s.scale * (2*(float64(i)+0.5)/float64(len(s.table)) - 1)))
	}
	return s
}

// fill fills dst, whole blocks, with random weights.
func (s *source) fill(r *rand.ChaCha8, dst []byte) {
	r.Read(dst) // never fails
	switch s.t {
	case gguf.F32:
		s.floats(dst)
	case gguf.F16, gguf.BF16:
		for i := 0; i < len(dst); i += 2 {
			binary.LittleEndian.PutUint16(dst[i:], s.table[binary.LittleEndian.Uint16(dst[i:])%4096])
		}
	default:
		d := quant.FloatToHalf(float32(s.scale))
		if d&0x7c00 == 0x7c00 {
			panic(fmt.Sprintf("synth: scale %g is too large for half precision", s.scale))
		}
		size := s.t.BlockBytes()
		for ; len(dst) > 0; dst = dst[size:] {
			s.scales(dst[:size], d)
		}
	}
}

func (s *source) floats(dst []byte) {
	for i := 0; i < len(dst); i += 4 {
		n := int32(binary.LittleEndian.Uint32(dst[i:]))
		binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(float32(s.scale*float64(n)/(1<<31))))
	}
}

// scales sets the scales and minima of one block, and what else random bits do not give.
func (s *source) scales(block []byte, d uint16) {
	put := func(at int, h uint16) { binary.LittleEndian.PutUint16(block[at:], h) }
	times := func(x float64) uint16 { return quant.FloatToHalf(float32(s.scale * x)) }
	switch s.t {
	case gguf.Q4_0, gguf.Q5_0, gguf.IQ4_NL, gguf.IQ4_XS:
		put(0, d)
	case gguf.Q4_1:
		put(0, d)
		put(2, times(-7.5))
	case gguf.Q5_1:
		put(0, d)
		put(2, times(-15.5))
	case gguf.Q8_0:
		put(0, d)
		symmetric(block[2:])
	case gguf.Q2_K: // 16 bytes of scale and minimum, a nibble each
		for i, x := range block[:16] {
			block[i] = x & 15 * 17
		}
		put(80, d)
		put(82, times(1.5))
	case gguf.Q3_K:
		put(108, d)
	case gguf.Q4_K:
		put(0, d)
		put(2, times(7.5))
		pairScales(block[4:16])
	case gguf.Q5_K:
		put(0, d)
		put(2, times(15.5))
		pairScales(block[4:16])
	case gguf.Q6_K:
		symmetric(block[192:208])
		put(208, d)
	}
}

// symmetric replaces -128, which no quantiser writes.
func symmetric(quants []byte) {
	for i, q := range quants {
		if q == 0x80 {
			quants[i] = 0x81
		}
	}
}

// pairScales makes the 6-bit minima of Q4_K and Q5_K equal to their scales. Bytes 0-3 hold the scales and 4-7 the minima of
// the first four sub-blocks, with the high bits of the last four on top; bytes 8-11 the low nibbles of the last four.
func pairScales(packed []byte) {
	copy(packed[4:8], packed[0:4])
	for i, x := range packed[8:12] {
		packed[8+i] = x & 15 * 17
	}
}
