// Command asm writes the amd64 assembly of package kernel:
//
//	go run ./asm -group float -out float_amd64.s -stubs float_amd64.go -pkg kernel
//
// A group is one concept and one pair of files. Kernels come in two widths, 256 bits (AVX2, FMA, F16C) and 512 bits
// (AVX-512 F, BW, DQ, VL); where the order of accumulation shows in a result, both use the same.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

// group is what this run generates.
var group string

func main() {
	flag.StringVar(&group, "group", "", "what to generate: float, attention, elementwise, quantise, unpack, integer, decode, delta, rope, ordered, upstream, flash or wait")
	flag.Parse()
	groups := map[string]func(){
		"float": float, "attention": attention, "elementwise": elementwise, "quantise": quantise, "unpack": unpack, "integer": integer, "decode": decode, "delta": delta, "rope": rope, "ordered": ordered, "upstream": ofUpstream, "flash": flash, "wait": wait,
	}
	generate, ok := groups[group]
	if !ok {
		fmt.Fprintf(os.Stderr, "asm: no group %q\n", group)
		os.Exit(2)
	}
	ConstraintExpr("!purego")
	generate()
	Generate()
}

// wait is what waiting loops do between two looks.
func wait() {
	begin("pause", "func()", "pause tells the processor that this is a waiting loop: it frees the core for its other thread.")
	PAUSE()
	RET()
}
