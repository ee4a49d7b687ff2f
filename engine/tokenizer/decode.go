package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Piece is the bytes that id stands for: perhaps only part of a character; the written form of special tokens; nothing
// for unused tokens and ids outside the vocabulary. It must not be modified.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id]
}

// Decode is the text of ids, special tokens in their written form. The space that an SPM vocabulary puts before a text
// is taken away again. Decode(Encode(s, false, false)) is s for valid UTF-8 without U+2581 in vocabularies with all bytes.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		piece := t.Piece(id)
		if i == 0 && t.spacePrefix && len(piece) > 0 && piece[0] == ' ' {
			piece = piece[1:]
		}
		b.Write(piece)
	}
	return b.String()
}

// Stream decodes tokens one by one without ever splitting a character. The zero value is not usable: see NewStream.
type Stream struct {
	t       *Tokenizer
	pending []byte // the beginning of a character
}

// NewStream begins a text in the middle: no leading space is taken away.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push takes one token and returns the characters that are complete with it. Bytes that can begin no character come
// out as they are.
func (s *Stream) Push(id int32) string {
	s.pending = append(s.pending, s.t.Piece(id)...)
	end := len(s.pending)
	for back := 1; back <= min(utf8.UTFMax-1, len(s.pending)); back++ {
		tail := s.pending[len(s.pending)-back:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				end = len(s.pending) - back
			}
			break
		}
	}
	out := string(s.pending[:end])
	s.pending = append(s.pending[:0], s.pending[end:]...)
	return out
}

// Flush returns what is left of a character that never was completed.
func (s *Stream) Flush() string {
	out := string(s.pending)
	s.pending = s.pending[:0]
	return out
}
