package parsers

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The embedded engine's form: upstream's line per physical cache, then one JSON line with exact bytes, with which the
// lines must agree. The state of recurrent layers is counted apart: it does not grow with the context.

const (
	kvKind         = "kv"
	recurrentCache = "recurrent"
)

func matchKV(t *text) bool { return t.hasKind(kvKind) }

func decodeKV(t *text) ([]Measurement, error) {
	var o *object
	for _, l := range t.lines {
		if !l.ofKind(kvKind) {
			continue
		}
		if o != nil {
			return nil, contradiction(l.n, "one kv line", "a second one")
		}
		var err error
		if o, err = newObject(l); err != nil {
			return nil, err
		}
	}
	caches, err := kvCaches(o)
	if err != nil {
		return nil, err
	}
	var sum float64
	for _, c := range caches {
		sum += c.bytes
	}
	if total := o.float("bytes"); o.err == nil && total != sum {
		return nil, contradiction(o.line, formatFloat(sum)+" bytes, the sum over the caches", formatFloat(total))
	}
	labels := map[string]string{"n_ctx": fmt.Sprint(o.int("n_ctx")), "n_seq_max": fmt.Sprint(o.int("n_seq_max"))}
	if o.err != nil {
		return nil, o.err
	}
	if err := compareCaches(t, caches, o.line); err != nil {
		return nil, err
	}
	return cacheMeasurements(caches, labels), nil
}

// cache is one physical cache: of attention, or the store of recurrent layers.
type cache struct {
	line                int
	recurrent           bool
	cells, layers       int
	typeK, typeV        string
	bytes, bytesK       float64
	bytesV              float64
	rounding            float64 // of each of the three; 0: exact
	hasCells, hasLayers bool
}

func kvCaches(o *object) ([]cache, error) {
	var out []cache
	for _, raw := range o.list("caches") {
		e, err := newObject(line{n: o.line, text: string(raw)})
		if err != nil {
			return nil, err
		}
		c := cache{
			line: o.line, recurrent: e.string("name") == recurrentCache,
			cells: e.int("cells"), layers: len(e.list("layers")), hasCells: true, hasLayers: true,
			typeK: strings.ToLower(e.string("type_k")), typeV: strings.ToLower(e.string("type_v")),
			bytesK: e.float("bytes_k"), bytesV: e.float("bytes_v"),
		}
		if e.err != nil {
			return nil, e.err
		}
		c.bytes = c.bytesK + c.bytesV
		if c.bytesK < 0 || c.bytesV < 0 || c.bytes != math.Trunc(c.bytes) {
			return nil, contradiction(o.line, "whole, not negative numbers of bytes", quote(string(raw)))
		}
		out = append(out, c)
	}
	return out, o.err
}

// compareCaches checks upstream's lines, where there are any, against the JSON line.
func compareCaches(t *text, exact []cache, l int) error {
	printed, err := cacheLines(t)
	if err != nil {
		return err
	}
	if len(printed) == 0 {
		return nil
	}
	if len(printed) != len(exact) {
		return contradiction(l, fmt.Sprintf("%d caches, as there are lines", len(printed)), fmt.Sprint(len(exact)))
	}
	for i, p := range printed {
		e := exact[i]
		same := p.recurrent == e.recurrent && p.cells == e.cells && p.layers == e.layers &&
			near(p.bytes, e.bytes, p.rounding) && near(p.bytesK, e.bytesK, p.rounding) && near(p.bytesV, e.bytesV, p.rounding)
		if !same {
			return contradiction(p.line, fmt.Sprintf("%d cells, %d layers, %.0f + %.0f bytes, as in line %d", e.cells, e.layers, e.bytesK, e.bytesV, l),
				quote(t.lines[p.line-1].text))
		}
	}
	return nil
}

func near(a, b, slack float64) bool { return math.Abs(a-b) <= slack*(1+1e-9) }

// cacheMeasurements sums over caches, those of recurrent layers apart.
func cacheMeasurements(caches []cache, labels map[string]string) []Measurement {
	var kv, recurrent cache
	kv.hasCells = true
	var typesK, typesV []string
	kvCount := 0
	for _, c := range caches {
		sum := &kv
		if c.recurrent {
			sum = &recurrent
		} else {
			kvCount++
			kv.hasCells = kv.hasCells && c.hasCells
			typesK, typesV = append(typesK, c.typeK), append(typesV, c.typeV)
		}
		sum.cells += c.cells
		sum.bytes += c.bytes
		sum.bytesK += c.bytesK
		sum.bytesV += c.bytesV
		sum.rounding += c.rounding
	}
	if len(typesK) > 0 {
		labels["type_k"], labels["type_v"] = joined(typesK), joined(typesV)
	}
	out := []Measurement{
		{Metric: KVBytes, Unit: UnitBytes, Value: kv.bytes, Rounding: kv.rounding, Labels: labels},
		{Metric: KVBytesK, Unit: UnitBytes, Value: kv.bytesK, Rounding: kv.rounding, Labels: labels},
		{Metric: KVBytesV, Unit: UnitBytes, Value: kv.bytesV, Rounding: kv.rounding, Labels: labels},
	}
	if kv.hasCells {
		out = append(out, Measurement{Metric: KVCells, Unit: UnitCells, Value: float64(kv.cells), Labels: labels})
	}
	if kvCount < len(caches) {
		out = append(out, Measurement{Metric: RecurrentBytes, Unit: UnitBytes, Value: recurrent.bytes, Rounding: recurrent.rounding, Labels: labels})
	}
	return out
}

// joined lists the different types of the caches.
func joined(types []string) string {
	slices.Sort(types)
	return strings.Join(slices.Compact(types), ",")
}
