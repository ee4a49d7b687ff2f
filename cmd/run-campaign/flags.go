package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/source"

	"github.com/spf13/cobra"
)

// llamaFlags are llama.cpp's one-dash spellings of more than one letter, which the flag library would read as several.
var llamaFlags = map[string]string{
	"-ub": "--ubatch-size", "-ctk": "--cache-type-k", "-ctv": "--cache-type-v", "-fa": "--flash-attn", "-pg": "--pg",
}

// expandLlamaFlags rewrites llamaFlags, also in the form -ctk=q8_0, up to a "--".
func expandLlamaFlags(args []string) []string {
	out := make([]string, len(args))
	copy(out, args)
	for i, a := range out {
		if a == "--" {
			break
		}
		name, value, has := strings.Cut(a, "=")
		if long, ok := llamaFlags[name]; ok {
			out[i] = long
			if has {
				out[i] += "=" + value
			}
		}
	}
	return out
}

// modelFlags are the flags of every command that opens one model.
type modelFlags struct {
	model   string
	threads int
}

func (f *modelFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&f.model, "model", "m", "builtin:glossary-5m", "GGUF file (the first part of a split model), or builtin:NAME")
	addThreads(c, &f.threads)
}

// count is the value of a flag that counts something: a whole number from 0 to most.
type count struct {
	n    *int
	most int
}

func (v count) Type() string   { return "int" }
func (v count) String() string { return strconv.Itoa(*v.n) }

func (v count) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > v.most {
		return fmt.Errorf("it must be a whole number from 0 to %d", v.most)
	}
	*v.n = n
	return nil
}

// addCount adds a flag that counts something; short may be empty.
func addCount(c *cobra.Command, n *int, name, short string, value int, usage string) {
	*n = value
	c.Flags().VarP(count{n, math.MaxInt32}, name, short, usage)
}

// mostThreads is what campaigns allow too. A pool of many thousands would take minutes to wake up for each product.
const mostThreads = 1024

// threads is a count that takes llama.cpp's -1 as well.
type threads struct{ count }

func (v threads) Set(s string) error {
	if s == "-1" {
		s = "0"
	}
	return v.count.Set(s)
}

func addThreads(c *cobra.Command, n *int) {
	c.Flags().VarP(threads{count{n, mostThreads}}, "threads", "t", "threads; 0 = one per processor")
}

// open opens the model; the caller closes it.
func (f *modelFlags) open() (*engine.Model, error) {
	return source.Model(f.model, engine.Options{Threads: f.threads})
}

// contextFlags are the flags of every command that makes a context.
type contextFlags struct {
	ctx, batch, ubatch int
	typeK, typeV       string
	drop               dropFlags
	flash              string
}

func (f *contextFlags) add(c *cobra.Command, nctx int, usage string) {
	if nctx >= 0 {
		addCount(c, &f.ctx, "ctx-size", "c", nctx, usage)
	}
	addCount(c, &f.batch, "batch-size", "b", 2048, "most tokens of one batch")
	addCount(c, &f.ubatch, "ubatch-size", "", 512, "tokens computed at once (also -ub)")
	c.Flags().StringVar(&f.typeK, "cache-type-k", "f16", "type of the K cache: f32, f16, q8_0, q4_0 (also -ctk)")
	c.Flags().StringVar(&f.typeV, "cache-type-v", "f16", "type of the V cache (also -ctv)")
	f.drop.add(c)
	c.Flags().StringVar(&f.flash, "flash-attn", "auto", "accepted for llama.cpp's sake; attention is always computed in tiles (also -fa)")
}

// options are the context's as far as they do not depend on the model, which dropFlags.bind adds; a mistake in a flag is a
// usage error.
func (f *contextFlags) options() (engine.ContextOptions, error) {
	o := engine.ContextOptions{NCtx: f.ctx, NBatch: f.batch, NUBatch: f.ubatch}
	var err error
	if o.TypeK, err = engine.ParseCacheType(f.typeK); err != nil {
		return o, &usageError{fmt.Errorf("-ctk: %w", err)}
	}
	if o.TypeV, err = engine.ParseCacheType(f.typeV); err != nil {
		return o, &usageError{fmt.Errorf("-ctv: %w", err)}
	}
	o.Mask, err = f.drop.check()
	return o, err
}
