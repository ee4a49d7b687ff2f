package campaigns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// maxBytes bounds a campaign file. Aliases are refused, so nothing grows beyond the text.
const maxBytes = 1 << 20

// document is a campaign file while it is read: its text, where each value stands, and what is wrong with it.
type document struct {
	sourceText
	values   map[path]*yaml.Node
	keys     map[path]*yaml.Node // of a value that stands in a mapping
	mistakes Mistakes            // the first maxMistakes
	faults   map[*yaml.Node]bool // what any mistake is about
}

// path names a value of the document: the keys and list positions that lead to it, each after a zero byte, positions
// marked by a one byte.
type path string

func (p path) key(name string) path { return p + path("\x00"+name) }
func (p path) item(i int) path      { return p + path("\x00\x01"+strconv.Itoa(i)) }

// at is the path of nested keys (string) and list positions (int).
func at(steps ...any) path {
	var p path
	for _, step := range steps {
		switch s := step.(type) {
		case string:
			p = p.key(s)
		case int:
			p = p.item(s)
		default:
			panic(fmt.Sprintf("campaigns: a path has no step of type %T", step))
		}
	}
	return p
}

// node is the node of the value p, or of the nearest value around it that the file has.
func (d *document) node(p path) *yaml.Node {
	for {
		if n, ok := d.values[p]; ok {
			return n
		}
		cut := strings.LastIndexByte(string(p), 0)
		if cut < 0 {
			return nil
		}
		p = p[:cut]
	}
}

// wrong notes a mistake at the value p; hint may be empty.
func (d *document) wrong(p path, hint, format string, args ...any) {
	d.note(d.node(p), hint, format, args...)
}

// wrongKey notes a mistake at the key of the value p.
func (d *document) wrongKey(p path, hint, format string, args ...any) {
	if n, ok := d.keys[p]; ok {
		d.note(n, hint, format, args...)
		return
	}
	d.wrong(p, hint, format, args...)
}

func (d *document) note(n *yaml.Node, hint, format string, args ...any) {
	m := &Mistake{File: d.file, Message: fmt.Sprintf(format, args...), Hint: hint, node: n}
	if n != nil {
		m.Line, m.Column = n.Line, n.Column
		m.Snippet = d.snippet(n.Line, n.Column, width(n))
	}
	d.add(m)
}

func (d *document) noteAt(line, column int, hint, format string, args ...any) {
	m := &Mistake{File: d.file, Line: line, Column: column, Message: fmt.Sprintf(format, args...), Hint: hint}
	m.Snippet = d.snippet(line, column, 1)
	d.add(m)
}

func (d *document) add(m *Mistake) {
	if m.node != nil {
		d.faults[m.node] = true
	}
	if len(d.mistakes) < maxMistakes {
		d.mistakes = append(d.mistakes, m)
	}
}

// clean reports whether no mistake has been noted at or inside of the values.
func (d *document) clean(values ...path) bool {
	for _, p := range values {
		if n, given := d.values[p]; given && d.faulty(n) {
			return false
		}
	}
	return true
}

func (d *document) faulty(n *yaml.Node) bool {
	return d.faults[n] || len(d.faults) > 0 && slices.ContainsFunc(n.Content, d.faulty)
}

// err returns the mistakes in the order of the file, nil when there are none.
func (d *document) err() error {
	if len(d.mistakes) == 0 {
		return nil
	}
	d.mistakes.sort()
	return d.mistakes
}

// parse turns text into the node of its one YAML document; nil when that fails, with the reason noted.
func parse(file string, text []byte) (*document, *yaml.Node) {
	d := &document{values: map[path]*yaml.Node{}, keys: map[path]*yaml.Node{}, faults: map[*yaml.Node]bool{}}
	d.file = file
	if len(text) > maxBytes {
		d.note(nil, "give a campaign, not a model or a text", "the file has %d bytes; a campaign has at most %d", len(text), maxBytes)
		return d, nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	d.lines = lineBreak.Split(string(text), -1)
	if !d.plainText() {
		return d, nil
	}
	reader := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := reader.Decode(&doc); {
	case errors.Is(err, io.EOF), err == nil && (len(doc.Content) == 0 || isNull(doc.Content[0])):
		d.note(nil, "a campaign needs at least name, models and stages", "the file is empty")
		return d, nil
	case err != nil:
		d.syntax(err)
		return d, nil
	}
	switch err := reader.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.syntax(err)
		return d, nil
	default:
		d.noteAt(max(second.Line, 1), 1, "put each campaign into a file of its own", "a second YAML document begins here")
		return d, nil
	}
	if !d.plainNodes(doc.Content[0]) {
		return d, nil
	}
	return d, doc.Content[0]
}

// plainText refuses what is not UTF-8 text, with the place of the first byte at fault.
func (d *document) plainText() bool {
	for i, line := range d.lines {
		for j, r := range line {
			bad := r == utf8.RuneError && !strings.HasPrefix(line[j:], "\ufffd") || r < ' ' && r != '\t' || r == 0x7f
			if bad {
				d.noteAt(i+1, utf8.RuneCountInString(line[:j])+1, "save it as UTF-8 text", "the file is not text: byte %#02x", line[j])
				return false
			}
		}
	}
	return true
}

// lineBreak is what YAML counts as the end of a line.
var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

var (
	syntaxLine    = regexp.MustCompile(`^line (\d+): `)
	unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)
)

// syntax notes an error of the YAML reader, which says at most a line.
func (d *document) syntax(err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := syntaxLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
		if strings.HasPrefix(message, "did not find expected") {
			line++ // the reader counts from 0 where its grammar, not its scanner, gives up
		}
	}
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		for i, text := range d.lines {
			if column := strings.Index(text, "*"+m[1]); column >= 0 {
				d.noteAt(i+1, utf8.RuneCountInString(text[:column])+1, noAliases, "aliases are not allowed in a campaign")
				return
			}
		}
	}
	if line < 1 || line > len(d.lines) {
		line = min(max(line, 1), len(d.lines))
	}
	text := d.lines[line-1]
	indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
	if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
		d.noteAt(line, tab+1, "YAML indents with spaces only", "a tab in the indentation")
		return
	}
	d.noteAt(line, len(indent)+1, "look for a missing quote, bracket, colon or comma here or just before", "not valid YAML: %s", message)
}

const noAliases = "write the value where it is used: then every value has one place, and no file grows when it is read"

// plainNodes refuses anchors, aliases, merge keys and tags, and keys that are not plain words.
func (d *document) plainNodes(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.note(n, noAliases, "aliases are not allowed in a campaign")
		return false
	case n.Anchor != "":
		d.note(n, noAliases, "anchors are not allowed in a campaign")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		d.note(n, "", "the tag %s is not allowed in a campaign", n.Tag)
		return false
	}
	ok := true
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			switch {
			case child.Kind == yaml.AliasNode || child.Anchor != "" || child.Style&yaml.TaggedStyle != 0: // refused below
			case child.Tag == "!!merge":
				d.note(child, noAliases, "merge keys are not allowed in a campaign")
				return false
			case child.Kind != yaml.ScalarNode || isNull(child):
				d.note(child, "", "a key must be a word")
				return false
			}
		}
		ok = d.plainNodes(child) && ok
	}
	return ok
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
