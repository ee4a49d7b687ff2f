package eval

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const choiceText = `{"question": "What is a tiger?", "choices": ["a wooden table", "a large feline"], "gold": 1}
{"subject": "birds", "question": "What does a gull eat?", "choices": ["fish", "ice", "wood"], "gold": 0}
`

func TestAQuestionMayBeAskedInTwoSubjects(t *testing.T) {
	twice := choiceText + strings.Replace(choiceText, `{"question"`, `{"subject": "cats", "question"`, 1)
	twice = strings.Replace(twice, "\n{\"subject\": \"birds\"", "\n{\"subject\": \"seas\"", 1)
	if tasks, err := ReadChoices(Input{"f", []byte(twice)}); err != nil || len(tasks) != 4 || tasks[2].Hash != tasks[0].Hash {
		t.Errorf("%d tasks, %v", len(tasks), err)
	}
}

func TestChoicesAreReadFromJSONLines(t *testing.T) {
	want, err := ReadChoices(Input{"f", []byte(choiceText)})
	if err != nil {
		t.Fatal(err)
	}
	expected := []ChoiceTask{
		{File: "f", Line: 1, Index: 0, Question: "Question: What is a tiger? Answer:", Answers: []string{"a wooden table", "a large feline"}, Gold: 1},
		{File: "f", Line: 2, Index: 1, Question: "Question: What does a gull eat? Answer:", Answers: []string{"fish", "ice", "wood"}, Gold: 0},
	}
	if diff := cmp.Diff(expected, want, cmpopts.IgnoreFields(ChoiceTask{}, "Hash")); diff != "" {
		t.Fatal(diff)
	}
	binaryTasks, err := ReadChoices(Input{"f", choiceFile(expected...)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, binaryTasks, cmpopts.IgnoreFields(ChoiceTask{}, "Line")); diff != "" {
		t.Errorf("the binary form of the same tasks differs:\n%s", diff)
	}
	if a, b := want[0].place(), binaryTasks[0].place(); a != "f:1" || b != "f: task 0" {
		t.Errorf("places %q and %q", a, b)
	}
	crlf := strings.ReplaceAll(choiceText, "\n", "\r\n")
	for name, b := range map[string][]byte{
		"no last newline": []byte(strings.TrimSuffix(choiceText, "\n")),
		"CRLF":            []byte(crlf),
		"byte order mark": append([]byte{0xEF, 0xBB, 0xBF}, choiceText...),
		"UTF-16":          utf16Bytes(crlf, binary.LittleEndian),
	} {
		got, err := ReadChoices(Input{"f", b})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func TestChoicesOfJSONLinesAreRefusedByLine(t *testing.T) {
	for _, c := range []struct {
		name, line, want string
	}{
		{"gold too high", `{"question": "Q", "choices": ["a", "b"], "gold": 2}`, "it is 0 to 1"},
		{"negative gold", `{"question": "Q", "choices": ["a", "b"], "gold": -1}`, `"gold" is -1`},
		{"gold as a letter", `{"question": "Q", "choices": ["a", "b"], "gold": "A"}`, "gold"},
		{"no gold", `{"question": "Q", "choices": ["a", "b"]}`, `"gold"`},
		{"no question", `{"choices": ["a", "b"], "gold": 0}`, `"question"`},
		{"empty question", `{"question": " ", "choices": ["a", "b"], "gold": 0}`, "none of them empty"},
		{"one choice", `{"question": "Q", "choices": ["a"], "gold": 0}`, "two answers at least"},
		{"empty choice", `{"question": "Q", "choices": ["a", ""], "gold": 0}`, "none of them empty"},
		{"blank choice", `{"question": "Q", "choices": [" ", "b"], "gold": 0}`, "none of them empty"},
		{"choices as a text", `{"question": "Q", "choices": "ab", "gold": 0}`, "choices"},
		{"too many choices", `{"question": "Q", "choices": [` + strings.Repeat(`"a",`, 100) + `"a"], "gold": 0}`, "at most 100"},
		{"unknown field", `{"question": "Q", "choices": ["a", "b"], "gold": 0, "answerKey": "B"}`, "answerKey"},
		{"cut off", `{"question": "Q", "choices": ["a",`, "no task"},
		{"two objects", `{"question": "Q", "choices": ["a", "b"], "gold": 0} {}`, "something follows"},
		{"empty line", "", "empty"},
		{"duplicate", `{"question": "What is a tiger?", "choices": ["a wooden table", "a large feline"], "gold": 0}`, "the same as that on line 1"},
	} {
		_, err := ReadChoices(Input{"q.jsonl", []byte(choiceText + c.line + "\n" + choiceText)})
		checkFormatError(t, c.name, err, 3, c.want)
	}
}

func TestPublishedChoicesAreTheSameInBothForms(t *testing.T) {
	read := func(name string) []ChoiceTask {
		b, err := os.ReadFile("../../../shared/data/" + name)
		if err != nil {
			t.Skip("no shared task files: ", err)
		}
		tasks, err := ReadChoices(Input{name, b})
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	for name, want := range map[string]int{"arc-easy-test": 2376, "arc-challenge-test": 1172} {
		lines, binaryTasks := read(name+".jsonl"), read(name+".bin")
		if len(lines) != want {
			t.Errorf("%s: %d tasks, want %d", name, len(lines), want)
		}
		if diff := cmp.Diff(binaryTasks, lines, cmpopts.IgnoreFields(ChoiceTask{}, "File", "Line")); diff != "" {
			t.Errorf("%s: %.2000s", name, diff)
		}
	}
	if n := len(read("mmlu-test-10per-subject.jsonl")); n != 570 {
		t.Errorf("MMLU: %d tasks", n)
	}
}

func FuzzReadChoiceLines(f *testing.F) {
	f.Add([]byte(choiceText))
	f.Add([]byte(`{"question":"Q","choices":["a","b"],"gold":1}` + "\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tasks, err := readChoiceLines(Input{"f", b})
		if (err == nil) != (len(tasks) > 0) {
			t.Fatalf("%d tasks, %v", len(tasks), err)
		}
		for _, k := range tasks {
			if k.Gold < 0 || k.Gold >= len(k.Answers) || len(k.Answers) < 2 || k.Question == "" {
				t.Fatalf("task %+v", k)
			}
		}
	})
}
