package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// GPT-2's byte alphabet writes every byte as one printable character: printable Latin-1 bytes as themselves, the
// others as the characters from U+0100 on, in order (Radford et al. 2019, encoder.py, bytes_to_unicode).
var byteToRune, runeToByte = func() (enc [256]rune, dec map[rune]byte) {
	dec = make(map[rune]byte, 256)
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if printable := b >= 0x21 && b <= 0x7E || b >= 0xA1 && b != 0xAD; !printable {
			r = next
			next++
		}
		enc[b] = r
		dec[r] = byte(b)
	}
	return enc, dec
}()

// decodeBytes turns a text in the byte alphabet into the bytes it stands for; ok is false if a character is not of
// the alphabet.
func decodeBytes(text string) (raw string, ok bool) {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		c, ok := runeToByte[r]
		if !ok {
			return "", false
		}
		b = append(b, c)
	}
	return string(b), true
}

// appendDecoded appends what a token text stands for; characters outside the alphabet become upstream's notice.
func appendDecoded(dst []byte, text string) []byte {
	for _, r := range text {
		if c, ok := runeToByte[r]; ok {
			dst = append(dst, c)
			continue
		}
		dst = fmt.Appendf(dst, "[UNK_BYTE_0x%x%s]", utf8.AppendRune(nil, r), text)
	}
	return dst
}
