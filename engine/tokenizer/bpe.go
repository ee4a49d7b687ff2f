package tokenizer

import (
	"fmt"
	"math"
	"strings"

	"attnbudget/engine/gguf"
)

// bpe is byte pair encoding by ranked merges (Sennrich et al. 2016) inside pre-tokens. Texts are numbered: a token's
// number is its id; texts that occur in merges only have numbers from len(vocabulary) on.
type bpe struct {
	split     splitter
	byteLevel bool
	whole     func(word string) bool // whether a word that is a token is taken as it is
	vocabSize int32
	numbers   map[string]int32 // text, in bytes as they occur in the input
	merges    map[pair]merge
	bytes     [256]int32 // number of each byte, byte-level only
	fallback  [256]int32 // token for a byte of a symbol that is no token, none where there is none
}

type pair struct{ left, right int32 }

type merge struct{ rank, id int32 }

func newBPE(f *gguf.File, v *vocab, k kind) (*bpe, error) {
	merges, err := f.Strings(keyMerges)
	if err != nil {
		return nil, err
	}
	// Ranks are compared as float32, which holds integers below 2²⁴ exactly.
	if len(merges) >= 1<<24 {
		return nil, fmt.Errorf("%s: %s has %d entries; fewer than %d are supported", f.Path, keyMerges, len(merges), 1<<24)
	}
	if int64(len(v.tokens))+3*int64(len(merges)) > math.MaxInt32 {
		return nil, fmt.Errorf("%s: %d tokens and %d merges are more than can be numbered", f.Path, len(v.tokens), len(merges))
	}
	b := &bpe{
		split: k.split, byteLevel: k.byteLevel, vocabSize: int32(len(v.tokens)),
		numbers: make(map[string]int32, len(v.tokens)), merges: make(map[pair]merge, len(merges)),
	}
	switch {
	case k.wholeWords:
		b.whole = func(string) bool { return true }
	case !k.byteLevel: // Gemma 4 takes a run of newlines whole
		b.whole = func(word string) bool { return word[0] == '\n' }
	default:
		b.whole = func(string) bool { return false }
	}
	b.numberTokens(v)
	for rank, m := range merges {
		b.addMerge(int32(rank), m)
	}
	return b, nil
}

// numberTokens enters the vocabulary. Byte-level texts are kept as the bytes they stand for, so that words need not be
// written in the byte alphabet to be looked up; a text outside the alphabet can never match a word.
func (b *bpe) numberTokens(v *vocab) {
	for id, t := range v.tokens {
		text, ok := t.text, true
		if b.byteLevel {
			text, ok = decodeBytes(t.text)
		}
		if ok {
			b.numbers[text] = int32(id)
		}
	}
	for c := range 256 {
		b.fallback[c] = none
		text := byteTokenText(byte(c))
		if b.byteLevel {
			// Upstream looks the UTF-8 bytes of the alphabet's character up one by one: only ASCII ones can be tokens.
			text = string(byteToRune[c])
			b.bytes[c] = b.number(string([]byte{byte(c)}))
		}
		if id, ok := v.byText[text]; ok && (!b.byteLevel || len(text) == 1) {
			b.fallback[c] = id
		}
	}
}

// number finds or gives the number of a text.
func (b *bpe) number(text string) int32 {
	if n, ok := b.numbers[text]; ok {
		return n
	}
	n := b.vocabSize + int32(len(b.numbers)) // never below vocabSize, and distinct because numbers only grows
	b.numbers[text] = n
	return n
}

// addMerge enters one "left right" of the merge list; of equal ones the first counts.
func (b *bpe) addMerge(rank int32, text string) {
	if text == "" {
		return
	}
	space := strings.IndexByte(text[1:], ' ') // the left part may itself be a space
	if space < 0 {
		return
	}
	left, right := text[:space+1], text[space+2:]
	if b.byteLevel {
		var okL, okR bool
		left, okL = decodeBytes(left)
		right, okR = decodeBytes(right)
		if !okL || !okR {
			return
		}
	}
	p := pair{b.number(left), b.number(right)}
	if _, ok := b.merges[p]; !ok {
		b.merges[p] = merge{rank, b.number(left + right)}
	}
}

func (b *bpe) encode(text string, ids []int32) []int32 {
	text = upstreamUTF8(text)
	var s mergeState
	for len(text) > 0 {
		n := b.split(text)
		ids = b.encodeWord(text[:n], &s, ids)
		text = text[n:]
	}
	return ids
}

func (b *bpe) encodeWord(word string, s *mergeState, ids []int32) []int32 {
	if b.whole(word) {
		if id, ok := b.numbers[word]; ok && id < b.vocabSize {
			return append(ids, id)
		}
	}
	b.fill(word, s)
	for i := 1; i < len(s.symbols); i++ {
		b.try(s, int32(i-1), int32(i))
	}
	for len(s.queue) > 0 {
		m := s.queue.pop()
		if m.stale(s.symbols) {
			continue
		}
		join(s.symbols, m.left, m.right)
		s.symbols[m.left].id = m.id
		b.try(s, s.symbols[m.left].prev, m.left)
		b.try(s, m.left, s.symbols[m.left].next)
	}
	for i := int32(0); i >= 0; i = s.symbols[i].next {
		ids = b.appendSymbol(word, s.symbols[i], ids)
	}
	return ids
}

// fill makes a symbol of every byte (byte-level) or character of a word.
func (b *bpe) fill(word string, s *mergeState) {
	s.symbols, s.queue = s.symbols[:0], s.queue[:0]
	for start := 0; start < len(word); {
		n, id := 1, none
		if b.byteLevel {
			id = b.bytes[word[start]]
		} else {
			n = min(charLen(word[start]), len(word)-start)
			if known, ok := b.numbers[word[start:start+n]]; ok {
				id = known
			}
		}
		s.symbols = append(s.symbols, symbol{start: int32(start), n: int32(n), id: id})
		start += n
	}
	link(s.symbols)
}

func (b *bpe) try(s *mergeState, left, right int32) {
	if left < 0 || right < 0 {
		return
	}
	l, r := s.symbols[left], s.symbols[right]
	if m, ok := b.merges[pair{l.id, r.id}]; ok {
		s.queue.push(bigram{priority: float32(m.rank), left: left, right: right, n: l.n + r.n, id: m.id})
	}
}

// appendSymbol emits a symbol: its token, or the byte tokens of what is no token.
func (b *bpe) appendSymbol(word string, s symbol, ids []int32) []int32 {
	if s.id >= 0 && s.id < b.vocabSize {
		return append(ids, s.id)
	}
	for _, c := range []byte(word[s.start : s.start+s.n]) {
		if id := b.fallback[c]; id != none {
			ids = append(ids, id)
		}
	}
	return ids
}
