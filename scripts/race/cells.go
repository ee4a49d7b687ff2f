package main

import (
	"fmt"
	"slices"
	"strings"
)

// model is a synthetic model that both engines run.
type model struct {
	Shape  string
	Format string
	Layers int // the first ones; 0 = all
}

func (m model) String() string {
	if m.Layers == 0 {
		return m.Shape + " " + m.Format
	}
	return fmt.Sprintf("%s %s, %d layers", m.Shape, m.Format, m.Layers)
}

func (m model) file() string { return fmt.Sprintf("%s-%d-%s.gguf", m.Shape, m.Layers, m.Format) }

// test is what is timed.
type test struct {
	Name                    string
	Prompt, Generate, Depth int
	Samples                 int // of one process
}

// The deep test fills the cache anew for every sample and a long prompt is its own repetition: one sample each.
var (
	pp512  = test{"pp512", 512, 0, 0, 2}
	pp2048 = test{"pp2048", 2048, 0, 0, 1}
	tg64   = test{"tg64", 0, 64, 0, 3}
	deep   = test{"tg32@d4096", 0, 32, 4096, 1}
)

// cell is one comparison: a row of the table.
type cell struct {
	Model model
	KV    string // type of the K and of the V cache
	Test  test
}

// key names a cell in the journal.
func (c cell) key() string {
	return fmt.Sprintf("%s/%d/%s/%s/%s", c.Model.Shape, c.Model.Layers, c.Model.Format, c.KV, c.Test.Name)
}

// words are what --only chooses by.
func (c cell) words() []string {
	return []string{c.Model.Shape, c.Model.Format, "kv-" + c.KV, c.Test.Name, strings.SplitN(c.Test.Name, "@", 2)[0]}
}

// cells lists the whole race, model by model.
func cells(full bool) []cell {
	cut := func(shape, format string, layers int) model {
		if full {
			layers = 0
		}
		return model{shape, format, layers}
	}
	var out []cell
	add := func(m model) {
		for _, t := range []test{pp512, pp2048, tg64, deep} {
			out = append(out, cell{m, "f16", t})
		}
	}
	for _, format := range []string{"Q4_0", "Q4_K_M", "Q6_K", "Q3_K_M", "Q8_0", "F16"} {
		m := cut("llama-3.2-1b", format, 4)
		add(m)
		if format == "Q4_0" {
			out = append(out, cell{m, "q8_0", deep}, cell{m, "q4_0", deep})
		}
	}
	// Cut to whole periods of their layers: three recurrent and one full, five local and one full, four local and one full.
	add(cut("qwen3.5-2b", "Q4_K_M", 4))
	add(cut("gemma-3-270m", "Q4_K_M", 6))
	add(cut("gemma-4-e2b", "Q4_K_M", 5))
	return out
}

// choose keeps the cells that have every word of only; a word that no cell has is a mistake.
func choose(all []cell, only string) ([]cell, error) {
	if only == "" {
		return all, nil
	}
	known := map[string]bool{}
	for _, c := range all {
		for _, w := range c.words() {
			known[strings.ToLower(w)] = true
		}
	}
	var out []cell
	alternatives := strings.Split(strings.ToLower(only), "/")
	for _, a := range alternatives {
		for w := range strings.SplitSeq(a, ",") {
			if !known[w] {
				return nil, fmt.Errorf("--only %s: no part of the race is called %q; there are models (llama-3.2-1b), formats (Q4_0), tests (pp512, pp2048, tg64, tg32) and caches (kv-q8_0)", only, w)
			}
		}
	}
	for _, c := range all {
		if slices.ContainsFunc(alternatives, c.has) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--only %s: no part of the race is all of that", only)
	}
	return out, nil
}

// has tells whether the cell has every word of a list.
func (c cell) has(list string) bool {
	words := strings.ToLower(strings.Join(c.words(), ",")) + ","
	for w := range strings.SplitSeq(list, ",") {
		if !strings.Contains(","+words, ","+w+",") {
			return false
		}
	}
	return true
}

// bar is how many times upstream's speed a cell has to reach, and aims at; 0 = nothing was promised.
func (c cell) bar() (least, aim float64) {
	switch {
	case c.Test == tg64:
		return 1.0, 1.3
	case c.Test == deep && c.KV == "f16":
		return 1.1, 1.5
	case c.Test == deep:
		return 1.2, 2
	case c.Test == pp512 && (c.Model.Format == "Q4_0" || c.Model.Format == "Q4_K_M"):
		return 1.0, 1.5
	case c.Test == pp512 && c.Model.Format == "F16":
		return 0.9, 1.2
	case c.Test == pp512:
		return 1.3, 2
	case c.Test == pp2048 && c.Model.Shape == "qwen3.5-2b":
		return 1.5, 4
	}
	return 0, 0
}

// memoryBar is how many times upstream's peak memory is allowed.
const memoryBar = 1.1
