package model

import (
	"math"

	"attnbudget/engine/kernel"
	"attnbudget/engine/meter"
	"attnbudget/engine/quant"
)

// perLayerEmbedding gives every layer of a gemma4 a small vector for every token: half from a table, half projected from
// the scaled token embedding.
type perLayerEmbedding struct {
	width     int
	table     kernel.Matrix // a row a token: layers x width
	project   Linear        // Embd -> layers x width
	norm      []float32     // [width]
	projScale float32       // 1/√Embd
	readScale float32       // √width
}

func loadPerLayer(c *Config, l *loader, width int) *perLayerEmbedding {
	all := width * len(c.Layers)
	return &perLayerEmbedding{
		width:     width,
		table:     l.matrix("per_layer_token_embd.weight", all, c.Vocab),
		project:   l.linear("per_layer_model_proj", c.Embd, all),
		norm:      l.norm("per_layer_proj_norm", width),
		projScale: 1 / sqrt32(c.Embd),
		readScale: sqrt32(width),
	}
}

// layerInput is what the per-layer embedding of one context works on.
type layerInput struct {
	x      *rows // the scaled token embedding
	in     *rows // what the current layer mixes in
	y      *rows
	read   *rows // the blocks of the table that hold the current layer's part
	m      *gemma4
	layer  int
	addRow func(p *Pass, i int)
}

func newLayerInput(p *Pass, m *gemma4) *layerInput {
	most, t := cap(p.live), m.perLayer
	block := t.table.Type.BlockSize()
	e := &layerInput{
		m: m, x: newRows(most, m.config.Embd), in: newRows(most, t.width), y: newRows(most, t.width),
		read: newRows(most, (t.width+2*block-2)/block*block),
	}
	e.addRow = func(p *Pass, i int) { e.combine(e.in.row(i), e.read.row(i), p.tokens[p.live[i]]) }
	p.follow(e.x)
	return e
}

// mixIn adds the per-layer embedding: x += rms(proj(gelu(gate x) * in)). Only the rows that are still needed are projected,
// layer by layer.
func (m *gemma4) mixIn(p *Pass, i int, l *gemma4Layer, e *layerInput) {
	p.linear(e.in, &l.inputProject, e.x)
	e.layer = i
	p.each(e.in, e.addRow)
	p.did(meter.Other, e.in, 3)
	p.linear(e.y, &l.inputGate, p.x)
	p.activate(e.y, e.in, kernel.GELUMul)
	p.linear(p.y, &l.inputProj, e.y)
	p.norm(p.y, p.y, l.inputPostNorm)
	p.add(p.x, p.y)
}

// combine makes of the projected embedding of one token what the current layer mixes in: (rms(in/√Embd) + √width table)/√2.
// The table is read in whole blocks, which need not start where the layer's part does.
func (e *layerInput) combine(in, read []float32, token int32) {
	t := e.m.perLayer
	kernel.Scale(in, t.projScale)
	kernel.RMSNorm(in, in, t.norm, e.m.config.Eps)
	block, from := t.table.Type.BlockSize(), e.layer*t.width
	first, last := from/block, (from+t.width+block-1)/block
	row := t.table.Data[int(token)*t.table.Type.RowBytes(t.table.Cols):]
	bytes := t.table.Type.BlockBytes()
	read = read[:(last-first)*block]
	quant.Dequantize(t.table.Type, read, row[first*bytes:last*bytes])
	for j, v := range read[from-first*block:][:t.width] {
		in[j] = (in[j] + v*t.readScale) * (1 / math.Sqrt2)
	}
}
