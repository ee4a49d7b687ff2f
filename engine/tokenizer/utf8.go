package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// upstreamUTF8 reads text as upstream does before BPE: leniently (surrogates are kept, overlong forms shortened), with
// U+FFFD in place of every byte that begins no character. Valid text is returned as it is.
func upstreamUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		r, n := lenientRune(text[i:])
		writeRune(&b, r)
		i += n
	}
	return b.String()
}

// lenientRune decodes the first character of s, which is not empty, and says how many bytes it took.
func lenientRune(s string) (rune, int) {
	lead, n := s[0], 0
	var r rune
	switch {
	case lead < 0x80:
		return rune(lead), 1
	case lead&0xE0 == 0xC0:
		r, n = rune(lead&0x1F), 2
	case lead&0xF0 == 0xE0:
		r, n = rune(lead&0x0F), 3
	case lead&0xF8 == 0xF0:
		r, n = rune(lead&0x07), 4
	}
	if n == 0 || len(s) < n {
		return utf8.RuneError, 1
	}
	for i := 1; i < n; i++ {
		if s[i]&0xC0 != 0x80 {
			return utf8.RuneError, 1
		}
		r = r<<6 | rune(s[i]&0x3F)
	}
	if r > utf8.MaxRune {
		return utf8.RuneError, 1
	}
	return r, n
}

// writeRune writes r as UTF-8, surrogates too, which the standard library refuses.
func writeRune(b *strings.Builder, r rune) {
	if r >= 0xD800 && r <= 0xDFFF {
		b.WriteByte(byte(0xE0 | r>>12))
		b.WriteByte(byte(0x80 | r>>6&0x3F))
		b.WriteByte(byte(0x80 | r&0x3F))
		return
	}
	b.WriteRune(r)
}

// charLen is the length of the character that begins with lead, by its high bits alone; a stray continuation byte
// counts as one.
func charLen(lead byte) int {
	switch {
	case lead < 0xC0:
		return 1
	case lead < 0xE0:
		return 2
	case lead < 0xF0:
		return 3
	}
	return 4
}
