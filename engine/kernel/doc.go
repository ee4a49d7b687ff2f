// Package kernel computes: matrix products with weights in GGUF blocks, attention over a KV cache, norms, activations,
// rotary embedding, and the worker pool they run on.
//
// It knows blocks, rows and cells, never layers, sequences or architectures; it owns no weights and no cache.
//
// # Numerics
//
// Before a product with quantised weights the activations are quantised the way upstream llama.cpp does for that weight
// type, because agreement with upstream depends on it: 32-element blocks of 8-bit codes (Q8_0, Q8_1) for the simple
// formats, 256-element blocks (Q8_K) for the K formats and IQ4_XS. For F16 and BF16 weights the activations are rounded
// to that type.
//
// Every result is a function of its own row alone: it depends neither on how many threads the pool has nor on how many
// rows share the batch, because matrix-vector and matrix-matrix kernels accumulate in the same order. That order is
//
//   - quantised weights: the integer dot product of a block (32 elements, or 256 for the K formats, with the sub-block
//     scales applied as integers) is exact; block results are scaled and added in float32, block after block, without
//     fused multiply-add. Generic and assembly kernels agree to the bit.
//   - float weights: eight partial sums (element i goes to sum i mod 8) with fused multiply-add, then halves and quarters are
//     added, and the two that are left: the order of upstream's AVX2 build for batches. If the columns are no multiple of 8
//     or the rows no multiple of 4, upstream has 32 partial sums instead, and so have we; these it also has for any single
//     row, and there only the kernel set "upstream" follows it. Generic and assembly kernels agree to the bit.
//   - attention: cells are taken in chunks of 256 by cell number; within a chunk scores and values accumulate one
//     element after another; chunks are merged in order with the running maximum of the logits (online softmax). Assembly
//     kernels agree to the bit; they fuse multiplications with additions, and the generic kernel does not.
//   - delta rule: sums run over the key elements in 32 partial sums as in upstream.Dot32, token after token.
//
// What is not finite is not lost: a NaN or an infinity among the activations of a row makes results of that row that are not
// finite either.
//
// The kernel set "upstream" adds up in upstream's order throughout, for results that are upstream's to the last bit. There a row
// depends on the size of its batch, because upstream multiplies single rows, fours and larger batches by different routines, and
// has three ways of attention (flash.go), one of which also depends on the number of threads.
package kernel
