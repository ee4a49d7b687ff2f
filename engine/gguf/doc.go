// Package gguf reads and writes GGUF files: typed metadata followed by named tensors.
//
// It reads versions 2 and 3 in little endian, also split over several files, and maps them into memory, so that
// opening a model costs no more than its metadata and every process shares the same pages. All lengths, counts and
// offsets are checked against the bytes that are really there before anything is returned; nothing is allocated on the
// word of the file alone.
//
// It will not convert big endian or version 1 files, interpret the numbers of a tensor (see engine/quant) or know what
// an architecture needs (see engine/model).
//
// Source of the layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
package gguf
