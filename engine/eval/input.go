package eval

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"attnbudget/engine/tokenizer"
)

// Input is a file to evaluate: its bytes, and its name for messages.
type Input struct {
	Name string
	Data []byte
}

var (
	bomUTF8    = []byte{0xEF, 0xBB, 0xBF}
	bomUTF16LE = []byte{0xFF, 0xFE}
	bomUTF16BE = []byte{0xFE, 0xFF}
)

// passage is the text of a perplexity input as upstream reads it: the bytes but for one last newline.
func (in Input) passage() (string, error) {
	if bytes.HasPrefix(in.Data, bomUTF16LE) || bytes.HasPrefix(in.Data, bomUTF16BE) {
		return "", &FormatError{in.Name, 0, "the text is UTF-16: convert it to UTF-8"}
	}
	head := in.Data[:min(len(in.Data), 4096)]
	if 4*bytes.Count(head, []byte{0}) > len(head) {
		return "", &FormatError{in.Name, 0, "more than a quarter of the first bytes are zero, as in UTF-16 or a binary file: plain UTF-8 text is needed"}
	}
	return string(bytes.TrimSuffix(in.Data, []byte("\n"))), nil
}

// passageWarnings say what makes the score of a text another than that of the text people know by its name: upstream
// tokenises all bytes as they are, and so does passage.
func (in Input) passageWarnings() []string {
	var w []string
	if bytes.HasPrefix(in.Data, bomUTF8) {
		w = append(w, in.Name+": the byte order mark at the beginning is scored as text: remove it")
	}
	if n := bytes.Count(in.Data, []byte("\r\n")); n > 0 {
		w = append(w, fmt.Sprintf("%s: %d lines end in CRLF, which is scored as text: convert the file to LF to compare with published figures", in.Name, n))
	}
	if !utf8.Valid(in.Data) {
		w = append(w, in.Name+": the text is not UTF-8, and is scored byte by byte where it is not: convert it")
	}
	return w
}

// lines are the lines of a task file, without line ends: UTF-8 (a byte order mark is dropped) or UTF-16 with a mark, LF
// or CRLF. Empty lines at the end of the file are left out.
func (in Input) lines() ([]string, error) {
	text, err := in.decode()
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i, l := range lines {
		if !utf8.ValidString(l) {
			return nil, &FormatError{in.Name, i + 1, "the line is not UTF-8: convert the file"}
		}
		if strings.ContainsRune(l, 0) {
			return nil, &FormatError{in.Name, i + 1, "the line has a zero byte, as in UTF-16 without a byte order mark or a binary file: UTF-8 text is needed"}
		}
	}
	return lines, nil
}

// decode turns the bytes into UTF-8.
func (in Input) decode() (string, error) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(in.Data, bomUTF16LE):
		order = binary.LittleEndian
	case bytes.HasPrefix(in.Data, bomUTF16BE):
		order = binary.BigEndian
	default:
		return string(bytes.TrimPrefix(in.Data, bomUTF8)), nil
	}
	b := in.Data[2:]
	if len(b)%2 != 0 {
		return "", &FormatError{in.Name, 0, "the text is UTF-16 but has an odd number of bytes: it is cut off"}
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	text := utf16.Decode(units)
	if !slices.Equal(utf16.Encode(text), units) {
		return "", &FormatError{in.Name, 0, "the text is UTF-16 but has halves of characters: it is damaged"}
	}
	return string(text), nil
}

// TokenCount is how many tokens a perplexity evaluation finds in the text.
func TokenCount(tok *tokenizer.Tokenizer, in Input) (int, error) {
	text, err := in.passage()
	if err != nil {
		return 0, err
	}
	if err := checkSize(in); err != nil {
		return 0, err
	}
	return len(tok.Encode(text, true, false)), nil
}

// checkSize refuses what the tokenizer cannot take.
func checkSize(in Input) error {
	const most = 1 << 30
	if len(in.Data) > most {
		return &FormatError{in.Name, 0, fmt.Sprintf("%d bytes are more than the %d an evaluation takes", len(in.Data), most)}
	}
	return nil
}
