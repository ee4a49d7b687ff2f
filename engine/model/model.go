// Package model holds the four architectures this engine runs, one file each, written to read like their papers: the
// tensors bound to a struct with clear names, and a short forward pass over the operations of Pass.
//
// A Network is immutable and shared by all contexts; everything a context owns is in its Pass. The package neither splits
// batches nor keeps sequences: package engine does, over kvcache.
package model

import (
	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
)

// Network is a loaded model.
type Network interface {
	// Config describes the model. It must not be changed.
	Config() *Config
	// prepare allocates what the architecture needs beside the common scratch of p, and returns the function that computes
	// one batch on p.
	prepare(p *Pass) (forward func())
}

// Load binds the tensors of f. With expandF32 all weights are expanded to float32 in memory. f must stay open as long as
// the Network is used. Errors: *drop.UnsupportedError, *gguf.KeyError, *KeyFault, *TensorError.
func Load(f *gguf.File, expandF32 bool) (Network, error) {
	roles, err := drop.Roles(f)
	if err != nil {
		return nil, err
	}
	c, k := readConfig(f, roles)
	if k.err != nil {
		return nil, k.err
	}
	l := &loader{f: f, expand: expandF32}
	var n Network
	switch c.Arch {
	case "llama":
		n = loadLlama(c, k, l)
	case "gemma3":
		n = loadGemma3(c, k, l)
	case "qwen35":
		n = loadQwen35(c, k, l)
	case "gemma4":
		n = loadGemma4(c, k, l)
	}
	if k.err != nil {
		return nil, k.err
	}
	if l.err != nil {
		return nil, l.err
	}
	return n, nil
}
