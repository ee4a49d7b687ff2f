package upstream

import "math"

// Log is ln x as the C library (glibc 2.27 and later) computes it for a single number, on processors with FMA: x = 2^k z, and
// with c near z from a table ln x = k ln 2 + ln c + ln(1+r), r = z/c - 1, the last by a polynomial of degree 4, all in float64
// (from Arm's optimized routines). x must be a positive normal number, as 1 + e^y is.
func Log(x float32) float32 {
	const offset = 0x3f330000 // of z, which lies in [0.6992, 1.3984)
	bits := math.Float32bits(x)
	shifted := bits - offset
	entry := &logTable[shifted>>19%16]
	k := int32(shifted) >> 23
	z := math.Float32frombits(bits - shifted&^(1<<23-1))
	r := math.FMA(float64(z), entry.inverse, -1)
	y := math.FMA(r, 0x1.5575b0be00b6ap-2, -0x1.ffffef20a4123p-2)
	r2 := r * r
	y = math.FMA(-0x1.00ea348b88334p-2, r2, y)
	return float32(math.FMA(y, r2, math.FMA(float64(k), 0x1.62e42fefa39efp-1, entry.log)+r))
}

// logTable holds 1/c and ln c for c in each sixteenth of the range of z, chosen so that both are near to fewer digits.
var logTable = [16]struct{ inverse, log float64 }{
	{0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2},
	{0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
	{0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2},
	{0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
	{0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3},
	{0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3},
	{0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4},
	{0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
	{0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5},
	{1, 0},
	{0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5},
	{0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4},
	{0x1.b2036576afce6p-1, 0x1.526e57720db08p-3},
	{0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3},
	{0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2},
	{0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2},
}
