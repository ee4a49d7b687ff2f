package eval

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

const swagText = "a tiger: a large\n1\nwooden table\nfeline of forests\nsea bird\nkind of cheese\n" +
	"a gull: a\n0\nsea bird\nlarge feline\npiece of wood\nform of cheese\n"

func TestReadHellaSwag(t *testing.T) {
	want, err := ReadHellaSwag(Input{"f", []byte(swagText)})
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 2 || want[1].Line != 7 || want[1].Index != 1 || want[0].Gold != 1 || want[0].Endings[3] != "kind of cheese" {
		t.Fatalf("tasks %+v", want)
	}
	if want[0].Hash != hashLines(strings.Split(swagText, "\n")[:6]...) {
		t.Errorf("hash %s", want[0].Hash)
	}
	crlf := strings.ReplaceAll(swagText, "\n", "\r\n")
	for name, b := range map[string][]byte{
		"no last newline":   []byte(strings.TrimSuffix(swagText, "\n")),
		"empty lines after": []byte(swagText + "\n\n"),
		"CRLF":              []byte(crlf),
		"byte order mark":   append([]byte{0xEF, 0xBB, 0xBF}, swagText...),
		"UTF-16 LE, CRLF":   utf16Bytes(crlf, binary.LittleEndian),
		"UTF-16 BE":         utf16Bytes(swagText, binary.BigEndian),
	} {
		got, err := ReadHellaSwag(Input{"f", b})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func utf16Bytes(s string, order binary.ByteOrder) []byte {
	b := make([]byte, 2)
	order.PutUint16(b, 0xFEFF)
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, 0, 0)
		order.PutUint16(b[len(b)-2:], u)
	}
	return b
}

func TestReadHellaSwagRefusesMistakesByLine(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(swagText, "\n"), "\n")
	edit := func(f func(l []string) []string) []byte {
		return []byte(strings.Join(f(slices.Clone(lines)), "\n") + "\n")
	}
	set := func(i int, s string) []byte { return edit(func(l []string) []string { l[i] = s; return l }) }
	for _, c := range []struct {
		name string
		data []byte
		line int
		want string
	}{
		{"missing ending", edit(func(l []string) []string { return slices.Delete(l, 3, 4) }), 8, "is a line missing or too many before it?"},
		{"missing last line", edit(func(l []string) []string { return l[:11] }), 7, "5 of 6 lines"},
		{"only a context", edit(func(l []string) []string { return l[:7] }), 7, "1 of 6 lines"},
		{"line too many", edit(func(l []string) []string { return slices.Insert(l, 4, "extra") }), 8, "must be the index"},
		{"gold 4", set(1, "4"), 2, `is "4"`},
		{"gold -1", set(7, "-1"), 8, `is "-1"`},
		{"gold with a tail", set(1, "1x"), 2, `is "1x"`},
		{"empty ending", set(4, "  "), 5, "ending 2 is empty"},
		{"empty context", set(6, ""), 7, "the context is empty"},
		{"duplicate", edit(func(l []string) []string { return append(l[:6], l[:6]...) }), 7, "the same as that on line 1"},
		{"duplicate with another gold", edit(func(l []string) []string {
			l = append(l[:6], l[:6]...)
			l[7] = "0"
			return l
		}), 7, "the same as that on line 1"},
		{"not UTF-8", set(2, "caf\xe9"), 3, "not UTF-8"},
		{"UTF-16 without a mark", utf16Bytes(swagText, binary.LittleEndian)[2:], 1, "UTF-16"},
		{"cut off UTF-16", utf16Bytes(swagText, binary.LittleEndian)[:21], 0, "odd number of bytes"},
		{"half a character in UTF-16", append(utf16Bytes(swagText, binary.LittleEndian), 0x00, 0xD8), 0, "halves of characters"},
		{"empty", nil, 0, "no tasks"},
	} {
		_, err := ReadHellaSwag(Input{"swag.txt", c.data})
		checkFormatError(t, c.name, err, c.line, c.want)
	}
}

func checkFormatError(t *testing.T, name string, err error, line int, want string) {
	t.Helper()
	var f *FormatError
	if !errors.As(err, &f) {
		t.Errorf("%s: error %v", name, err)
		return
	}
	if f.Line != line || !strings.Contains(f.Problem, want) {
		t.Errorf("%s: %v, want line %d and %q", name, err, line, want)
	}
}

func TestReadWinogrande(t *testing.T) {
	const text = "0,\"They met, the _ and I.\",cat,dog,1\n1,The _ is \"big\" now.,cat,dog, 2\n2,\"A \"\"_\"\", b\",x,y,2\n\n"
	tasks, skipped, err := ReadWinogrande(Input{"f", []byte(text)})
	if err != nil || skipped != 0 || len(tasks) != 3 {
		t.Fatalf("%+v, %d, %v", tasks, skipped, err)
	}
	for i, want := range []string{"They met, the |cat|dog| and I.", "The |cat|dog| is \"big\" now.", `A "|x|y|", b`} {
		k := tasks[i]
		if got := strings.Join([]string{k.Before, k.Choices[0], k.Choices[1], k.After}, "|"); got != want || k.Line != i+1 || k.Index != i {
			t.Errorf("task %d: %q, want %q", i, got, want)
		}
	}
	crlf := strings.ReplaceAll(text, "\n", "\r\n")
	for name, b := range map[string][]byte{
		"CRLF":            []byte(crlf),
		"byte order mark": append([]byte{0xEF, 0xBB, 0xBF}, text...),
		"UTF-16":          utf16Bytes(crlf, binary.LittleEndian),
		"one line end":    []byte(text[:len(text)-1]),
		"no line end":     []byte(text[:len(text)-2]),
	} {
		got, skipped, err := ReadWinogrande(Input{"f", b})
		if err != nil || !slices.Equal(got, tasks) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if want := strings.HasSuffix(name, "line end"); (skipped == 1) != want {
			t.Errorf("%s: %d skipped", name, skipped)
		}
	}
}

func TestReadWinograndeRefusesMistakesByLine(t *testing.T) {
	const good = "0,The _ ran.,cat,dog,1\n"
	for _, c := range []struct {
		name, data string
		line       int
		want       string
	}{
		{"answer 3", good + "1,A _ b.,x,y,3\n\n", 2, `"3"`},
		{"no answer", good + "1,A _ b.,x,y,\n\n", 2, `""`},
		{"header", "index,sentence_,a,b,answer\n" + good, 1, `"answer"`},
		{"too few fields", good + "1,A _ b.,x,2\n\n", 2, "4 fields"},
		{"unquoted comma", good + "1,A _, b.,x,y,2\n\n", 2, "6 fields"},
		{"open quote", good + "1,\"A _ b.,x,y,2\n\n", 2, "quotes"},
		{"no blank", good + "1,A b.,x,y,2\n\n", 2, "no underscore"},
		{"empty choice", good + "1,A _ b.,x, ,2\n\n", 2, "choice 2 is empty"},
		{"equal choices", good + "1,A _ b.,x,x,2\n\n", 2, `both choices are "x"`},
		{"empty line", good + "\n" + "1,A _ b.,x,y,2\n\n", 2, "empty"},
		{"duplicate", good + "1,The _ ran.,cat,dog,2\n\n", 2, "the same as that on line 1"},
		{"nothing", "\n", 0, "no tasks"},
	} {
		_, _, err := ReadWinogrande(Input{"w.csv", []byte(c.data)})
		checkFormatError(t, c.name, err, c.line, c.want)
	}
}

func TestWinograndeLeavesOutWhatUpstreamLeavesOutAndSaysSo(t *testing.T) {
	tok := shippedTokenizer(t)
	data := builtinInput(t, "gloss-grande.csv")
	data.Data = data.Data[:len(data.Data)-1] // the empty last line
	w, err := NewWinogrande(tok, data, TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Tasks) != 399 || len(w.Warnings) != 1 || !strings.Contains(w.Warnings[0], "line 400") {
		t.Errorf("%d tasks, warnings %q", len(w.Tasks), w.Warnings)
	}
	if _, err := NewWinogrande(tok, Input{"one.csv", []byte("0,The _ ran.,cat,dog,1")}, TaskOptions{}); err == nil {
		t.Error("a file without a task that counts was accepted")
	}
}

func TestPublishedTaskFilesAreRead(t *testing.T) {
	for name, want := range map[string]int{"hellaswag_val_1000.txt": 1000, "hellaswag_val_olmes1000.txt": 1000, "winogrande-debiased-eval.csv": 1267} {
		b, err := os.ReadFile("../../../shared/data/" + name)
		if err != nil {
			t.Skip("no shared task files: ", err)
		}
		var n, skipped int
		if strings.HasSuffix(name, ".csv") {
			var tasks []WinograndeTask
			tasks, skipped, err = ReadWinogrande(Input{name, b})
			n = len(tasks)
		} else {
			var tasks []HellaSwagTask
			tasks, err = ReadHellaSwag(Input{name, b})
			n = len(tasks)
		}
		if err != nil || n != want || skipped != 0 {
			t.Errorf("%s: %d tasks, %d skipped, %v", name, n, skipped, err)
		}
	}
}

func TestTextsThatAreNotWhatTheyAreCalledAreNoticed(t *testing.T) {
	tok := shippedTokenizer(t)
	const folder = "../../../shared/fixtures/public/bad-wiki.test.raw-"
	read := func(name string) Input {
		b, err := os.ReadFile(folder + name)
		if err != nil {
			t.Skip("no shared conformance data: ", err)
		}
		return Input{name, b}
	}
	var short *TooShortError
	if _, err := NewPerplexity(tok, read("stub.txt"), PerplexityOptions{}); !errors.As(err, &short) {
		t.Errorf("four sentences under the name of a book: error %v", err)
	}
	in := read("crlf-head.txt")
	p, err := NewPerplexity(tok, in, PerplexityOptions{NCtx: 128})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "lines end in CRLF") {
		t.Errorf("warnings %q", p.Warnings)
	}
	in.Data = bytes.ReplaceAll(in.Data, []byte("\r\n"), []byte("\n"))
	lf, err := NewPerplexity(tok, in, PerplexityOptions{NCtx: 128})
	if err != nil {
		t.Fatal(err)
	}
	if len(lf.Warnings) != 0 || slices.Equal(lf.tokens, p.tokens) {
		t.Errorf("with LF: warnings %q, the same tokens: %v", lf.Warnings, slices.Equal(lf.tokens, p.tokens))
	}
}

func TestTextsInThePlaceOfTaskFilesAreRefusedByFileAndLine(t *testing.T) {
	for _, c := range []struct {
		name               string
		swag, grande, mmlu int // line of the mistake
	}{{"stub.txt", 1, 1, 1}, {"crlf-head.txt", 2, 1, 1}} {
		name := "bad-wiki.test.raw-" + c.name
		b, err := os.ReadFile("../../../shared/fixtures/public/" + name)
		if err != nil {
			t.Skip("no shared conformance data: ", err)
		}
		in := Input{name, b}
		_, swag := ReadHellaSwag(in)
		_, _, grande := ReadWinogrande(in)
		_, mmlu := ReadChoices(in)
		checkFormatError(t, name+" as HellaSwag", swag, c.swag, "")
		checkFormatError(t, name+" as Winogrande", grande, c.grande, "instead of 5")
		checkFormatError(t, name+" as multiple choice", mmlu, c.mmlu, "no task")
		for _, err := range []error{swag, grande, mmlu} {
			if err == nil || !strings.HasPrefix(err.Error(), name+":") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestOneLastNewlineOfATextIsNotScored(t *testing.T) {
	for text, want := range map[string]string{"a": "a", "a\n": "a", "a\n\n": "a\n", "": ""} {
		if got, err := (Input{"f", []byte(text)}).passage(); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestDoubtfulTextsAreScoredWithAWarning(t *testing.T) {
	tok := shippedTokenizer(t)
	good := builtinInput(t, "evaluation.txt").Data[:2000]
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"plain", good, ""},
		{"byte order mark", append([]byte{0xEF, 0xBB, 0xBF}, good...), "byte order mark"},
		{"CRLF", bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), "CRLF"},
		{"Latin-1", append(slices.Clone(good), 0xE9, '\n'), "not UTF-8"},
	} {
		p, err := NewPerplexity(tok, Input{"t", c.data}, PerplexityOptions{NCtx: 64})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := strings.Join(p.Warnings, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: warnings %q", c.name, got)
		}
	}
}

func FuzzReadHellaSwag(f *testing.F) {
	f.Add([]byte(swagText))
	f.Add(utf16Bytes(swagText, binary.BigEndian))
	f.Fuzz(func(t *testing.T, b []byte) {
		tasks, err := ReadHellaSwag(Input{"f", b})
		if (err == nil) != (len(tasks) > 0) {
			t.Fatalf("%d tasks, %v", len(tasks), err)
		}
		for _, k := range tasks {
			if k.Gold < 0 || k.Gold > 3 || k.Context == "" || slices.Contains(k.Endings[:], "") {
				t.Fatalf("task %+v", k)
			}
		}
	})
}

func FuzzReadWinogrande(f *testing.F) {
	f.Add([]byte(winoCSV))
	f.Add([]byte("0,\"a \"\"_\"\", b\",x,y,2\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tasks, skipped, err := ReadWinogrande(Input{"f", b})
		if (err == nil) != (len(tasks) > 0) || skipped > len(tasks) {
			t.Fatalf("%d tasks, %d skipped, %v", len(tasks), skipped, err)
		}
		for _, k := range tasks {
			if k.Answer != 1 && k.Answer != 2 || k.Choices[0] == k.Choices[1] || k.Choices[0] == "" {
				t.Fatalf("task %+v", k)
			}
		}
	})
}
