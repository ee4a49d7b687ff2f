package limits

import (
	"encoding/binary"
	"runtime"
)

func generic() loops {
	return loops{name: "generic", read: read, multiplyAdd: func(n int) { runtime.KeepAlive(multiplyAdd(n, 0.5, 1)) }, operations: 2 * 8}
}

func read(b []byte) byte {
	var sum [4]uint64
	for ; len(b) >= 32; b = b[32:] {
		for i := range sum {
			sum[i] ^= binary.LittleEndian.Uint64(b[8*i:])
		}
	}
	all := sum[0] ^ sum[1] ^ sum[2] ^ sum[3]
	return byte(all ^ all>>8 ^ all>>16 ^ all>>24 ^ all>>32 ^ all>>40 ^ all>>48 ^ all>>56)
}

// multiplyAdd does n rounds on eight independent numbers and returns their sum, so that no compiler can leave them out.
//
//go:noinline
func multiplyAdd(n int, a, b float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for range n {
		s0, s1, s2, s3 = s0*a+b, s1*a+b, s2*a+b, s3*a+b
		s4, s5, s6, s7 = s4*a+b, s5*a+b, s6*a+b, s7*a+b
	}
	return s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7
}
