// Package meter counts the work of forward passes: calls, bytes, operations and, on request, time and processor events, by
// kind of work and by layer. It is the evidence that the work of a dropped layer is gone and not merely faster.
//
// A Meter is told what was done by the code that does it; it knows no shapes and estimates nothing. It allocates only when
// it is made and when a longer context than any before is attended to.
package meter

import "time"

// Kind is a kind of work.
type Kind int

// The kinds of work. Bytes are those that have to come from memory or go there, each once a call however often a kernel
// reads it again out of a cache. Operations are multiplications and additions of products, recurrence and attention (two to a
// multiply-add), and elements written elsewhere.
const (
	Attention  Kind = iota // bytes of the K and V cells that any row of the call sees
	Recurrence             // convolution and state of recurrent layers: bytes of the state read and written
	Matrices               // products with weights, quantisation of activations included: bytes of the weights
	Norms                  // bytes of activations read and written
	Head                   // output projection: bytes of its weights
	Other                  // embedding, rotation, activations, residuals, storing keys and values: bytes read and written
	Kinds                  // how many there are
)

var names = [Kinds]string{"attention", "recurrence", "matrices", "norms", "head", "other"}

func (k Kind) String() string { return names[k] }

// Count is an amount of work.
type Count struct {
	Calls      int64         `json:"calls"`
	Bytes      int64         `json:"bytes"`
	Operations int64         `json:"operations"`
	Time       time.Duration `json:"ns,omitempty"` // 0 without Meter.Clock
	Events     *Events       `json:"events,omitempty"`
}

// Events are what a processor counts by itself.
type Events struct {
	Instructions int64 `json:"instructions"`
	Cycles       int64 `json:"cycles"`
}

// Plus is the sum of two amounts.
func (c Count) Plus(d Count) Count {
	sum := Count{Calls: c.Calls + d.Calls, Bytes: c.Bytes + d.Bytes, Operations: c.Operations + d.Operations, Time: c.Time + d.Time}
	if c.Events != nil || d.Events != nil {
		sum.Events = &Events{}
		for _, e := range []*Events{c.Events, d.Events} {
			if e != nil {
				sum.Events.Instructions += e.Instructions
				sum.Events.Cycles += e.Cycles
			}
		}
	}
	return sum
}

// Work is an amount of every kind of work.
type Work [Kinds]Count

// Total is the sum over the kinds.
func (w *Work) Total() Count {
	var sum Count
	for _, c := range w {
		sum = sum.Plus(c)
	}
	return sum
}

// Meter adds up work. A nil *Meter counts nothing. It belongs to the goroutine of one context.
type Meter struct {
	// Clock attributes the time since the last Add, or Begin, to the work that Add reports, so that the times add up to that of
	// the passes.
	Clock bool
	// Events, when set, is read with the clock: what the processor has counted since some fixed moment.
	Events func() Events

	parts  []Work // of the embedding, each layer, and what follows the layers
	at     int
	last   time.Time
	before Events
	cells  cellSet
}

// New returns a meter for a model with that many layers.
func New(layers int) *Meter { return &Meter{parts: make([]Work, layers+2)} }

// Reset forgets everything counted.
func (m *Meter) Reset() { clear(m.parts) }

// Layers is the number of layers.
func (m *Meter) Layers() int { return len(m.parts) - 2 }

// Layer is the work of a layer: -1 is what precedes the first, Layers() what follows the last.
func (m *Meter) Layer(i int) *Work { return &m.parts[i+1] }

// Total is the work of all layers and of what is around them.
func (m *Meter) Total() Work {
	var sum Work
	for i := range m.parts {
		for k, c := range m.parts[i] {
			sum[k] = sum[k].Plus(c)
		}
	}
	return sum
}

// Begin says that a forward pass begins.
func (m *Meter) Begin() {
	if m == nil {
		return
	}
	m.at = 0
	if m.Clock {
		m.last = time.Now()
	}
	if m.Events != nil {
		m.before = m.Events()
	}
}

// Enter says that what follows belongs to a layer; see Layer.
func (m *Meter) Enter(layer int) {
	if m != nil {
		m.at = layer + 1
	}
}

// Add counts one call of a kind.
func (m *Meter) Add(k Kind, bytes, operations int) {
	if m != nil {
		m.add(k, bytes, operations)
	}
}

func (m *Meter) add(k Kind, bytes, operations int) {
	c := &m.parts[m.at][k]
	c.Calls++
	c.Bytes += int64(bytes)
	c.Operations += int64(operations)
	if m.Clock {
		now := time.Now()
		c.Time += now.Sub(m.last)
		m.last = now
	}
	if m.Events != nil {
		now := m.Events()
		if c.Events == nil {
			c.Events = &Events{}
		}
		c.Events.Instructions += now.Instructions - m.before.Instructions
		c.Events.Cycles += now.Cycles - m.before.Cycles
		m.before = now
	}
}
