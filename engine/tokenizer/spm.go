package tokenizer

import (
	"fmt"
	"strings"
)

// spm is SentencePiece's BPE: of all neighbouring pairs whose joined text is a token, the one with the highest score is
// merged first (Kudo and Richardson 2018). What is no token in the end becomes byte tokens.
type spm struct {
	tokens []token
	byText map[string]int32
	bytes  [256]int32
	// wordwise says that no token has a space behind another character, so that no merge crosses into a new word and
	// words can be merged one by one, in caches that fit: several times faster, and the same result.
	wordwise bool
}

func newSPM(file string, v *vocab) (*spm, error) {
	s := &spm{tokens: v.tokens, byText: v.byText, wordwise: true}
	for _, t := range v.tokens {
		s.wordwise = s.wordwise && wordLen(t.text) == len(t.text)
	}
	for b := range 256 {
		id, ok := v.byText[byteTokenText(byte(b))]
		if !ok {
			id, ok = v.byText[string([]byte{byte(b)})]
		}
		if !ok {
			return nil, fmt.Errorf("%s: %s: no token for byte %s, so not every text could be encoded; an SPM vocabulary needs all 256", file, keyTokens, byteTokenText(byte(b)))
		}
		s.bytes[b] = id
	}
	return s, nil
}

// wordLen is the length of the first word of text: leading spaces and all up to the next space.
func wordLen(text string) int {
	spaces := 0
	for strings.HasPrefix(text[spaces:], escapedSpace) {
		spaces += len(escapedSpace)
	}
	if i := strings.Index(text[spaces:], escapedSpace); i >= 0 {
		return spaces + i
	}
	return len(text)
}

func (s *spm) encode(text string, ids []int32) []int32 {
	var scratch mergeState
	for len(text) > 0 {
		n := len(text)
		if s.wordwise {
			n = wordLen(text)
		}
		ids = s.encodeWord(text[:n], &scratch, ids)
		text = text[n:]
	}
	return ids
}

func (s *spm) encodeWord(text string, m *mergeState, ids []int32) []int32 {
	symbols := m.symbols[:0]
	for start := 0; start < len(text); {
		n := min(charLen(text[start]), len(text)-start)
		symbols = append(symbols, symbol{start: int32(start), n: int32(n)})
		start += n
	}
	link(symbols)
	m.symbols = symbols
	q := &m.queue
	try := func(left, right int32) {
		if left < 0 || right < 0 {
			return
		}
		l, n := symbols[left], symbols[left].n+symbols[right].n
		if id, ok := s.byText[text[l.start:l.start+n]]; ok {
			q.push(bigram{priority: -s.tokens[id].score, left: left, right: right, n: n, id: id})
		}
	}
	for i := 1; i < len(symbols); i++ {
		try(int32(i-1), int32(i))
	}
	for len(*q) > 0 {
		b := q.pop()
		if b.stale(symbols) {
			continue
		}
		join(symbols, b.left, b.right)
		try(symbols[b.left].prev, b.left)
		try(b.left, symbols[b.left].next)
	}
	for i := 0; i >= 0 && i < len(symbols); i = int(symbols[i].next) {
		piece := text[symbols[i].start : symbols[i].start+symbols[i].n]
		if id, ok := s.byText[piece]; ok {
			ids = append(ids, id)
			continue
		}
		for j := range len(piece) {
			ids = append(ids, s.bytes[piece[j]])
		}
	}
	return ids
}
