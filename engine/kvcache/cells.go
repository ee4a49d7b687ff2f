package kvcache

import "attnbudget/engine/kernel"

// cells says which position of which sequences each place of a cache holds.
type cells struct {
	pos    []int32
	seqs   []SeqSet // empty set = free cell
	used   int      // cells that are not free
	high   int      // every cell from here on is free
	head   int      // where the search for free cells starts
	window int      // 0 = no sliding window
}

func newCells(n, window int) *cells {
	return &cells{pos: make([]int32, n), seqs: make([]SeqSet, n), window: window}
}

func (c *cells) clear() {
	clear(c.seqs)
	c.used, c.high, c.head = 0, 0, 0
}

// set makes cell i hold position pos of seqs.
func (c *cells) set(i int, pos int32, seqs SeqSet) {
	if c.seqs[i].Empty() {
		c.used++
	}
	c.pos[i], c.seqs[i] = pos, seqs
	c.high = max(c.high, i+1)
}

// forget takes seq out of cell i.
func (c *cells) forget(i int, seq int32) {
	c.seqs[i].Remove(seq)
	if c.seqs[i].Empty() {
		c.used--
		c.head = min(c.head, i)
	}
	for c.high > 0 && c.seqs[c.high-1].Empty() {
		c.high--
	}
}

// last is the greatest position held of seq, -1 when none is.
func (c *cells) last(seq int32) int32 {
	last := int32(-1)
	for i := range c.high {
		if c.pos[i] > last && c.seqs[i].Has(seq) {
			last = c.pos[i]
		}
	}
	return last
}

// find chooses n cells for new tokens, appending them to out[:0]; ok is false when there are not enough. Free cells are
// taken from head on, wrapping. A cell of a sliding-window cache may be taken too when the window has moved past it. (Upstream
// keeps such a cell as long as several sequences share it.)
func (c *cells) find(n int, out []int) (_ []int, ok bool) {
	out = out[:0]
	size := len(c.pos)
	if n > size {
		return out, false
	}
	head := c.head
	if head > c.used+2*n { // plenty of room before it: fill the front first
		head = 0
	}
	var last [MaxSeqs]int32
	if c.window > 0 {
		c.lasts(&last)
	}
	for k := 0; k < size && len(out) < n; k++ {
		i := head + k
		if i >= size {
			i -= size
		}
		if c.seqs[i].Empty() || c.expired(i, &last) {
			out = append(out, i)
		}
	}
	return out, len(out) == n
}

// lasts fills last with the greatest position held of every sequence.
func (c *cells) lasts(last *[MaxSeqs]int32) {
	for i := range last {
		last[i] = -1
	}
	for i := range c.high {
		for seq := range c.seqs[i].All {
			last[seq] = max(last[seq], c.pos[i])
		}
	}
}

// expired reports whether no later token of any of its sequences can see cell i.
func (c *cells) expired(i int, last *[MaxSeqs]int32) bool {
	if c.window == 0 {
		return false
	}
	for seq := range c.seqs[i].All {
		if !c.hidden(c.pos[i], last[seq]+1) {
			return false
		}
	}
	return true
}

// hidden reports whether the window hides a key at position key from a query at position query.
func (c *cells) hidden(key, query int32) bool {
	return c.window > 0 && int(query)-int(key) >= c.window
}

// put places tokens into the cells that find chose. Where a cell is taken from a sequence, everything of that sequence up
// to the lost position is forgotten, so that what is held of a sequence never has a hole.
func (c *cells) put(slots []int, pos []int32, seqs []SeqSet) {
	var lost [MaxSeqs]int32
	for i := range lost {
		lost[i] = -1
	}
	taken := false
	for _, i := range slots {
		for seq := range c.seqs[i].All {
			lost[seq] = max(lost[seq], c.pos[i])
			taken = true
		}
	}
	for k, i := range slots {
		c.set(i, pos[k], seqs[k])
	}
	if taken {
		c.purge(&lost)
	}
	if len(slots) > 0 {
		c.head = (slots[len(slots)-1] + 1) % len(c.pos)
	}
}

// purge forgets every position up to lost[seq]. New tokens come after everything held, so none of them is forgotten.
func (c *cells) purge(lost *[MaxSeqs]int32) {
	for i := range c.high {
		for seq := range c.seqs[i].All {
			if c.pos[i] <= lost[seq] {
				c.forget(i, seq)
			}
		}
	}
}

// remove forgets the positions p0 <= p < p1 of seq.
func (c *cells) remove(seq, p0, p1 int32) {
	for i := c.high - 1; i >= 0; i-- {
		if c.seqs[i].Has(seq) && p0 <= c.pos[i] && c.pos[i] < p1 {
			c.forget(i, seq)
		}
	}
}

// share makes the positions p0 <= p < p1 of src belong to dst as well.
func (c *cells) share(src, dst, p0, p1 int32) {
	for i := range c.high {
		if c.seqs[i].Has(src) && p0 <= c.pos[i] && c.pos[i] < p1 {
			c.seqs[i].Add(dst)
		}
	}
}

// see appends the runs of cells that a query of seq at position pos sees: its own sequence, not later than itself, and
// inside the window.
func (c *cells) see(out []kernel.Span, pos int32, seq int32) []kernel.Span {
	from := -1
	for i := range c.high {
		visible := c.pos[i] <= pos && c.seqs[i].Has(seq) && !c.hidden(c.pos[i], pos)
		switch {
		case visible && from < 0:
			from = i
		case !visible && from >= 0:
			out = append(out, kernel.Span{From: from, To: i})
			from = -1
		}
	}
	if from >= 0 {
		out = append(out, kernel.Span{From: from, To: c.high})
	}
	return out
}
