package parsers

import (
	"fmt"
	"regexp"
)

// Upstream's allocator lines since mid 2025, in the start-up log of any of its tools:
//
//	llama_kv_cache: size =    8.00 MiB (  8192 cells,   8 layers,  1/1 seqs), K (f16):    4.00 MiB, V (f16):    4.00 MiB
//	llama_memory_recurrent: size =    0.41 MiB (     1 cells,   8 layers,  1 seqs  0 rs_seq), R (f32): ...
//
// A sliding-window model has two caches, announced by llama_kv_cache_iswa lines. A tool that first measures how much
// fits creates its context twice.

var (
	cacheLine = regexp.MustCompile(`(llama_kv_cache(?:_unified)?|llama_memory_recurrent): size =\s*(\S+) MiB \(\s*(\d+) cells,\s*(\d+) layers,[^)]*\), ` +
		`[KR] \((\w+)\):\s*(\S+) MiB, [VS] \((\w+)\):\s*(\S+) MiB(?:, P \(\w+\):\s*(\S+) MiB)?$`)
	cutCacheLine = regexp.MustCompile(`(llama_kv_cache(_unified)?|llama_memory_recurrent): size =`)
	newContext   = regexp.MustCompile(`constructing llama_context`)
	windowPair   = regexp.MustCompile(`llama_kv_cache(_unified)?_iswa: creating`)
)

const mib = 1 << 20

func matchKVCache(t *text) bool { return t.matches(cutCacheLine) }

// cacheLines reads every size line. Sizes have two decimals of a MiB.
func cacheLines(t *text) ([]cache, error) {
	var out []cache
	for _, l := range t.lines {
		if !cutCacheLine.MatchString(l.text) {
			continue
		}
		c, err := cacheLineOf(l)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func cacheLineOf(l line) (cache, error) {
	c := cache{line: l.n, rounding: 0.005 * mib, hasCells: true, hasLayers: true}
	m := cacheLine.FindStringSubmatch(l.text)
	if m == nil {
		return c, truncated(l.n, "size, cells, layers and the sizes of both parts", quote(l.text))
	}
	c.recurrent, c.typeK, c.typeV = m[1] == "llama_memory_recurrent", m[5], m[7]
	var err error
	if c.cells, err = whole(l.n, "cells", m[3]); err != nil {
		return c, err
	}
	if c.layers, err = whole(l.n, "layers", m[4]); err != nil {
		return c, err
	}
	for i, dst := range []*float64{&c.bytes, &c.bytesK, &c.bytesV} {
		v, err := number(l.n, "a size in MiB", m[[]int{2, 6, 8}[i]])
		if err != nil {
			return c, err
		}
		*dst = v * mib
	}
	if m[9] == "" && !near(c.bytes, c.bytesK+c.bytesV, 3*c.rounding) {
		return c, contradiction(l.n, "a size that is the sum of its parts", quote(l.text))
	}
	return c, nil
}

func decodeKVCache(t *text) ([]Measurement, error) {
	caches, err := oneContext(t)
	if err != nil {
		return nil, err
	}
	if len(caches) == 0 {
		return nil, truncated(len(t.lines), "a cache size line in the last context", "none")
	}
	return cacheMeasurements(caches, map[string]string{}), nil
}

// oneContext returns the caches of the log's only context. Contexts that were created again with the same caches are
// one; several different ones are refused, because nothing says which is meant.
func oneContext(t *text) ([]cache, error) {
	var result, group []cache
	pair := false
	finish := func() error {
		if err := plausible(group, pair); err != nil {
			return err
		}
		if len(group) > 0 {
			if len(result) > 0 && !sameCaches(result, group) {
				return contradiction(group[0].line, "one context, or the same one again", "a context with other caches")
			}
			result = group
		}
		group, pair = nil, false
		return nil
	}
	for _, l := range t.lines {
		switch {
		case newContext.MatchString(l.text):
			if err := finish(); err != nil {
				return nil, err
			}
		case windowPair.MatchString(l.text):
			pair = true
		case cutCacheLine.MatchString(l.text):
			c, err := cacheLineOf(l)
			if err != nil {
				return nil, err
			}
			group = append(group, c)
		}
	}
	if err := finish(); err != nil {
		return nil, err
	}
	return result, nil
}

// plausible checks that caches can belong to one context: one of attention, two of a sliding-window model, and at
// most one recurrent store.
func plausible(group []cache, pair bool) error {
	attention, recurrent := 0, 0
	for _, c := range group {
		if c.recurrent {
			recurrent++
		} else {
			attention++
		}
	}
	want := 1
	if pair {
		want = 2
	}
	switch {
	case attention > want || recurrent > 1:
		return contradiction(group[len(group)-1].line, fmt.Sprintf("no more than %d of attention and 1 of recurrent layers in a context", want),
			fmt.Sprintf("%d and %d", attention, recurrent))
	case pair && attention < 2:
		return truncated(0, "the size lines of both caches of a sliding-window model", fmt.Sprint(attention))
	}
	return nil
}

func sameCaches(a, b []cache) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		x.line, y.line = 0, 0
		if x != y {
			return false
		}
	}
	return true
}
