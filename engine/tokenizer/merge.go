package tokenizer

// symbol is a stretch of text in a doubly linked list that merging shortens. A symbol of length 0 has been merged into
// its left neighbour.
type symbol struct {
	start, n   int32 // bytes of the text
	prev, next int32 // -1 at the ends
	id         int32 // number of its text, -1 if nothing merges with it
}

// mergeState is scratch memory shared by the words of one text.
type mergeState struct {
	symbols []symbol
	queue   queue
}

// link chains symbols in order.
func link(symbols []symbol) {
	for i := range symbols {
		symbols[i].prev, symbols[i].next = int32(i-1), int32(i+1)
	}
	if len(symbols) > 0 {
		symbols[len(symbols)-1].next = -1
	}
}

// join merges symbol right into its left neighbour.
func join(symbols []symbol, left, right int32) {
	l, r := &symbols[left], &symbols[right]
	l.n += r.n
	r.n = 0
	l.next = r.next
	if r.next >= 0 {
		symbols[r.next].prev = left
	}
}

// bigram is a candidate merge of two neighbours. Lower priority goes first, then the leftmost.
type bigram struct {
	priority    float32
	left, right int32
	n           int32 // bytes of both, to recognise a candidate that an earlier merge has overtaken
	id          int32 // of the merged text
}

func (b bigram) before(c bigram) bool {
	return b.priority < c.priority || b.priority == c.priority && b.left < c.left
}

// stale reports whether one of the two has been merged with something else since.
func (b bigram) stale(symbols []symbol) bool {
	l, r := symbols[b.left], symbols[b.right]
	return l.n == 0 || r.n == 0 || l.n+r.n != b.n
}

// queue is a binary heap of bigrams.
type queue []bigram

func (q *queue) push(b bigram) {
	h := append(*q, b)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	*q = h
}

func (q *queue) pop() bigram {
	h := *q
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	*q = h
	return top
}
