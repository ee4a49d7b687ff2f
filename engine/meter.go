package engine

import "attnbudget/engine/meter"

// Meter makes m count the work of the following calls of Decode, until the next call; nil counts nothing. m is for a model of
// Info.Layers layers.
func (c *Context) Meter(m *meter.Meter) { c.pass.Meter = m }
