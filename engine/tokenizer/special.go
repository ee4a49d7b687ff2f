package tokenizer

import (
	"maps"
	"slices"
	"strings"
)

// specials recognises tokens written out in a text. Longer ones go first, wherever they stand, and what they cover is
// no longer searched; that is upstream's order, and not the same as the longest match at every place.
type specials struct {
	byText  map[string]int32
	control map[int32]bool // recognised only on request; the others are user-defined
	strip   map[int32]strip
	lengths []lengthIndex // longest first
}

// strip says which side of a token loses its white space.
type strip struct{ left, right bool }

// lengthIndex says which bytes begin a special token of one length.
type lengthIndex struct {
	n     int
	begin [256]bool
}

func newSpecials(v *vocab, rules map[int32]strip) *specials {
	s := &specials{byText: make(map[string]int32), control: make(map[int32]bool), strip: rules}
	lengths := make(map[int]*lengthIndex)
	for id, t := range v.tokens {
		if t.attr&(control|userDefined|unknown) == 0 {
			continue
		}
		s.byText[t.text] = int32(id)
		if t.attr&(control|unknown) != 0 {
			s.control[int32(id)] = true
		}
		if lengths[len(t.text)] == nil {
			lengths[len(t.text)] = &lengthIndex{n: len(t.text)}
		}
		lengths[len(t.text)].begin[t.text[0]] = true
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(lengths))) {
		s.lengths = append(s.lengths, *lengths[n])
	}
	return s
}

// stripRules lists the tokens that swallow neighbouring white space. GGUF does not say; upstream goes by names.
func stripRules(v *vocab, name, pre string) map[int32]strip {
	rules := make(map[int32]strip)
	set := func(text string, s strip) {
		if id, ok := v.byText[text]; ok {
			rules[id] = s
		}
	}
	name = strings.ToLower(name)
	switch {
	case pre == "jina-v2-de" || pre == "jina-v2-es":
		set("<mask>", strip{left: true})
	case strings.Contains(name, "phi-3") || strings.Contains(name, "phi3"):
		for id, t := range v.tokens {
			if t.attr&(control|userDefined|unknown) != 0 {
				rules[int32(id)] = strip{right: true}
			}
		}
		set("</s>", strip{right: true})
		for _, text := range []string{"<unk>", "<s>", "<|endoftext|>"} {
			set(text, strip{})
		}
	case strings.Contains(name, "modern-bert"):
		set("[MASK]", strip{left: true})
	}
	return rules
}

// fragment is either a token or a stretch of text.
type fragment struct {
	token int32 // none for text
	text  string
}

// partition cuts text at the special tokens in it: user-defined ones, and the others if parseSpecial.
func (s *specials) partition(text string, parseSpecial bool) []fragment {
	if text == "" {
		return nil
	}
	fragments := []fragment{{none, text}}
	for i := range s.lengths {
		fragments = s.cut(fragments, &s.lengths[i], parseSpecial)
	}
	return fragments
}

// cut cuts the text fragments at the special tokens of one length.
func (s *specials) cut(fragments []fragment, l *lengthIndex, parseSpecial bool) []fragment {
	var out []fragment // stays nil until something is cut
	for i, f := range fragments {
		rest, done := f.text, false
		for f.token == none {
			at, id := s.find(rest, l, parseSpecial)
			if id == none {
				break
			}
			if out == nil {
				out = append(make([]fragment, 0, len(fragments)+2), fragments[:i]...)
			}
			before, after := rest[:at], rest[at+l.n:]
			if s.strip[id].left {
				before = strings.TrimRight(before, asciiSpace)
			}
			if s.strip[id].right {
				after = strings.TrimLeft(after, asciiSpace)
			}
			if before != "" {
				out = append(out, fragment{none, before})
			}
			out = append(out, fragment{token: id})
			rest, done = after, true
		}
		switch {
		case done && rest != "":
			out = append(out, fragment{none, rest})
		case !done && out != nil:
			out = append(out, f)
		}
	}
	if out == nil {
		return fragments
	}
	return out
}

// asciiSpace is what C's isspace takes for white space.
const asciiSpace = " \t\n\v\f\r"

// find is where the first special token of one length is in text, and which it is.
func (s *specials) find(text string, l *lengthIndex, parseSpecial bool) (int, int32) {
	for i := 0; i+l.n <= len(text); i++ {
		if !l.begin[text[i]] {
			continue
		}
		if id, ok := s.byText[text[i:i+l.n]]; ok && (parseSpecial || !s.control[id]) {
			return i, id
		}
	}
	return 0, none
}
