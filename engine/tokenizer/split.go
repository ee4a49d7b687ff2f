package tokenizer

import (
	"strings"
	"unicode"
)

// splitter returns the length of the first pre-token of text, which is not empty. Tokens never cross pre-tokens.
// Each is written by hand after the vocabulary's regular expression, because these look ahead, which Go's regexp
// (rightly) does not.
type splitter func(text string) int

// class is the kind of a character, as far as pre-tokenisers ask.
type class uint8

const (
	letter class = 1 << iota // \p{L}
	number                   // \p{N}
	mark                     // \p{M}
	space                    // \s
	other
)

// asciiClass is classOf for ASCII, which is most of most texts.
var asciiClass = func() (t [128]class) {
	for r := range t {
		t[r] = classOf(rune(r))
	}
	return t
}()

func classOf(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsMark(r):
		return mark
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// first is the first character of s, its length in bytes and its class; all zero at the end of the text.
func first(s string) (r rune, n int, c class) {
	if s == "" {
		return 0, 0, 0
	}
	if s[0] < 128 {
		return rune(s[0]), 1, asciiClass[s[0]]
	}
	r, n = lenientRune(s)
	return r, n, classOf(r)
}

// run is the length of the run of characters of the given classes at the start of s.
func run(s string, classes class) int {
	end := 0
	for {
		_, n, c := first(s[end:])
		if c&classes == 0 {
			return end
		}
		end += n
	}
}

// contraction is the length of an English contraction ('s 't 'm 'd 're 've 'll) at the start of s, 0 if there is none.
func contraction(s string, anyCase bool) int {
	if s[0] != '\'' {
		return 0
	}
	head := s[:min(len(s), 3)]
	if anyCase {
		head = strings.ToLower(head)
	}
	if len(head) >= 2 && strings.IndexByte("stmd", head[1]) >= 0 {
		return 2
	}
	if head == "'re" || head == "'ve" || head == "'ll" {
		return 3
	}
	return 0
}

// splitLlama3 is (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitLlama3(text string) int { return splitWords(text, letter, 3) }

// splitQwen2 is the same with single digits.
func splitQwen2(text string) int { return splitWords(text, letter, 1) }

// splitQwen35 is splitQwen2 with marks taken as letters.
func splitQwen35(text string) int { return splitWords(text, letter|mark, 1) }

// splitWords is the pattern of splitLlama3 for a given notion of letters and a longest group of digits.
func splitWords(text string, letters class, digits int) int {
	r, n, c := first(text)
	if m := contraction(text, true); m > 0 {
		return m
	}
	if r != '\r' && r != '\n' && c != number {
		if _, _, next := first(text[n:]); (c|next)&letters != 0 {
			return n + run(text[n:], letters)
		}
	}
	if c == number {
		end := n
		for range digits - 1 {
			_, n, c := first(text[end:])
			if c != number {
				break
			}
			end += n
		}
		return end
	}
	start, c := optionalSpace(text, r, c)
	punctuation := (other | mark) &^ letters
	if c&punctuation != 0 {
		end := start + run(text[start:], punctuation)
		return end + len(text[end:]) - len(strings.TrimLeft(text[end:], "\r\n"))
	}
	return splitSpaces(text, true)
}

// splitGPT2 is 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func splitGPT2(text string) int {
	if m := contraction(text, false); m > 0 {
		return m
	}
	r, _, c := first(text)
	start, c := optionalSpace(text, r, c)
	for _, classes := range []class{letter, number, other | mark} {
		if c&classes != 0 {
			return start + run(text[start:], classes)
		}
	}
	return splitSpaces(text, false)
}

// splitDigits is \p{N} first, and splitGPT2 on what lies between: numbers stand alone, without the space before them, and
// white space before a number stays together.
func splitDigits(text string) int {
	_, n, c := first(text)
	switch c {
	case number:
		return n
	case space:
		end := run(text, space)
		if _, _, next := first(text[end:]); next == number {
			return end
		}
	}
	return splitGPT2(text)
}

// optionalSpace skips one space at the start of text: where the rest begins and the class of its first character.
func optionalSpace(text string, r rune, c class) (int, class) {
	if r != ' ' {
		return 0, c
	}
	_, _, c = first(text[1:])
	return 1, c
}

// splitSpaces is \s+(?!\S)|\s+ for text that begins with white space, after \s*[\r\n]+ if lines count. The last space
// before a word belongs to the word.
func splitSpaces(text string, lines bool) int {
	end, last, line := 0, 0, 0
	for {
		r, n, c := first(text[end:])
		if c != space {
			break
		}
		last = end
		end += n
		if r == '\r' || r == '\n' {
			line = end
		}
	}
	switch {
	case lines && line > 0:
		return line
	case last > 0 && end < len(text):
		return last
	}
	return end
}

// splitLines is [^\n]+|\n+, all that Gemma 4 splits.
func splitLines(text string) int {
	if text[0] == '\n' {
		return len(text) - len(strings.TrimLeft(text, "\n"))
	}
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return i
	}
	return len(text)
}
