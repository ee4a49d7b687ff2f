// Package upstream has the sums and functions of upstream llama.cpp's build for AVX2 (`haswell`), number for number: the
// same order of additions, the same fused multiply-adds, the same approximations of exp, sin and cos.
//
// Float32 addition is not associative, so engines that are equally right differ in the last bit, and where a model rounds
// activations (to codes, to half precision) one bit becomes a visible difference now and then. With these functions nothing
// of that kind is left between two engines, and what does differ is a mistake in one of them.
//
// The package knows numbers only, no tensors, and does not try to be fast on processors without AVX2 and FMA.
package upstream
