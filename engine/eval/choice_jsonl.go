package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// choiceLine is a line of a multiple-choice file of JSON lines, such as ARC and MMLU are published in.
type choiceLine struct {
	Subject  string   `json:"subject"` // not part of what is asked
	Question *string  `json:"question"`
	Choices  []string `json:"choices"`
	Gold     *int     `json:"gold"` // from 0
}

// isText tells JSON lines, or another text, from upstream's binary format: that begins with a number below 2²⁴, whose last byte
// is 0.
func (in Input) isText() bool {
	if bytes.HasPrefix(in.Data, bomUTF16LE) || bytes.HasPrefix(in.Data, bomUTF16BE) {
		return true
	}
	data := bytes.TrimPrefix(in.Data, bomUTF8)
	head := data[:min(4, len(data))]
	return len(head) > 0 && !slices.ContainsFunc(head, func(b byte) bool { return b == 0 || b >= utf8.RuneSelf })
}

// readChoiceLines reads one object a line. The question is put as in the binary files made of them: "Question: ... Answer:".
func readChoiceLines(in Input) ([]ChoiceTask, error) {
	lines, err := in.lines()
	if err != nil {
		return nil, err
	}
	var tasks []ChoiceTask
	seen := make(map[string]int)
	for i, line := range lines {
		fail := func(format string, a ...any) ([]ChoiceTask, error) {
			return nil, &FormatError{in.Name, i + 1, fmt.Sprintf(format, a...)}
		}
		var l choiceLine
		switch err := decodeStrictly(line, &l); {
		case strings.TrimSpace(line) == "":
			return fail("the line is empty")
		case err != nil:
			return fail("the line is no task: %v", err)
		case l.Question == nil || l.Choices == nil || l.Gold == nil:
			return fail(`a task has "question", "choices" and "gold"`)
		case *l.Gold < 0 || *l.Gold >= len(l.Choices):
			return fail(`"gold" is %d; with %d choices it is 0 to %d`, *l.Gold, len(l.Choices), len(l.Choices)-1)
		}
		t := ChoiceTask{File: in.Name, Line: i + 1, Index: i, Answers: l.Choices, Gold: *l.Gold}
		if strings.TrimSpace(*l.Question) != "" {
			t.Question = "Question: " + *l.Question + " Answer:"
		}
		if err := t.check(); err != nil {
			return fail("%v", err)
		}
		t.Hash = t.contentHash()
		key := hashLines(append(t.texts(), l.Subject)...) // MMLU asks some questions in two subjects
		if first, ok := seen[key]; ok {
			return fail("the task is the same as that on line %d", first)
		}
		seen[key] = t.Line
		tasks = append(tasks, t)
	}
	if len(tasks) == 0 {
		return nil, &FormatError{in.Name, 0, "there are no tasks"}
	}
	return tasks, nil
}

// decodeStrictly reads one JSON object that is the whole line and has no unknown fields.
func decodeStrictly(line string, v any) error {
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}
