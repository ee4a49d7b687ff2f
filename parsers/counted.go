package parsers

import (
	"fmt"
	"math"
)

// Counted is what the embedded engine counts while it measures throughput. Older builds write only some of it.
type Counted struct {
	Collections        []int           `json:"gc,omitempty"`           // of garbage, inside each sample
	MinorFaults        []int           `json:"minor_faults,omitempty"` // page faults inside each sample, served from memory
	MajorFaults        []int           `json:"major_faults,omitempty"` // served from a disk
	BytesPerToken      float64         `json:"bytes_per_token,omitempty"`
	OperationsPerToken float64         `json:"operations_per_token,omitempty"`
	Work               map[string]Work `json:"work,omitempty"` // of all samples together, by kind
}

// Work is an amount of work of one kind.
type Work struct {
	Calls      int64 `json:"calls"`
	Bytes      int64 `json:"bytes"`
	Operations int64 `json:"operations"`
}

// counted reads what of Counted an object has, nil when it has nothing, and checks it against itself: samples have each one
// number, and the work of all of them is that of their tokens.
func counted(o *object, samples, tokens int) *Counted {
	c, found := &Counted{}, false
	has := func(name string) bool {
		_, ok := o.fields[name]
		found = found || ok
		return ok
	}
	for _, s := range []struct {
		name string
		list *[]int
	}{{"samples_gc", &c.Collections}, {"samples_minor_faults", &c.MinorFaults}, {"samples_major_faults", &c.MajorFaults}} {
		if !has(s.name) {
			continue
		}
		if *s.list = field(o, s.name, parseAs[[]int]("a list of whole numbers")); len(*s.list) != samples {
			o.fail(contradiction(o.line, fmt.Sprintf("%d numbers in %s, as there are samples", samples, s.name), fmt.Sprint(len(*s.list))))
		}
	}
	if has("work") {
		c.Work = field(o, "work", parseAs[map[string]Work]("an object of calls, bytes and operations by kind"))
	}
	var sum Work
	for _, w := range c.Work {
		sum.Bytes, sum.Operations = sum.Bytes+w.Bytes, sum.Operations+w.Operations
	}
	for _, r := range []struct {
		name  string
		value *float64
		sum   int64
	}{{"bytes_per_token", &c.BytesPerToken, sum.Bytes}, {"operations_per_token", &c.OperationsPerToken, sum.Operations}} {
		if !has(r.name) {
			continue
		}
		*r.value = o.float(r.name)
		if want := float64(r.sum) / float64(samples*tokens); c.Work != nil && math.Abs(*r.value-want) > 1e-9*want {
			o.fail(contradiction(o.line, fmt.Sprintf("%s of %v, the work divided by the tokens", r.name, want), formatFloat(*r.value)))
		}
	}
	if !found {
		return nil
	}
	return c
}
