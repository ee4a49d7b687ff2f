package eval

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSelections(t *testing.T) {
	tok := shippedTokenizer(t)
	in := builtinInput(t, "gloss-swag.txt")
	all, err := ReadHellaSwag(in)
	if err != nil {
		t.Fatal(err)
	}
	list := func(lines ...string) Selection {
		return Selection{SelectListed, Input{"list.txt", []byte(strings.Join(lines, "\n") + "\n")}}
	}
	for _, c := range []struct {
		name  string
		tasks int
		s     Selection
		want  []int
	}{
		{"drawn", 3, Selection{}, drawInOrder(len(all), 3)},
		{"all", 3, Selection{By: SelectAll}, identity(len(all))},
		{"first", 3, Selection{By: SelectFirst}, []int{0, 1, 2}},
		{"first of as many as there are", 0, Selection{By: SelectFirst}, identity(len(all))},
		{"listed", 1, list("7", all[399].Hash, "0"), []int{7, 399, 0}},
		{"listed in Windows", 1, list("7\r", " 2 \r"), []int{7, 2}},
	} {
		h, err := NewHellaSwag(tok, in, TaskOptions{Tasks: c.tasks, Selection: c.s})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []int
		for _, k := range h.Tasks {
			got = append(got, k.Index)
		}
		if !slices.Equal(got, c.want) || len(h.Warnings) != 0 {
			t.Errorf("%s: tasks %v, want %v; warnings %q", c.name, got, c.want, h.Warnings)
		}
	}
	for _, c := range []struct {
		name string
		s    Selection
		line int
		want string
	}{
		{"outside", list("3", "400"), 2, "no task 400, only 0 to 399"},
		{"negative", list("-1"), 1, "no task -1"},
		{"unknown hash", list("0123456789abcdef"), 1, "no task of gloss-swag.txt has the hash"},
		{"word", list("1", "two"), 2, `"two" is neither`},
		{"empty line", list("1", "", "2"), 2, `"" is neither`},
		{"twice", list("5", "6", all[5].Hash), 3, "on line 1 already"},
		{"empty", list(), 0, "empty"},
	} {
		_, err := NewHellaSwag(tok, in, TaskOptions{Selection: c.s})
		checkFormatError(t, c.name, err, c.line, c.want)
	}
}

func FuzzTaskList(f *testing.F) {
	tasks, err := ReadHellaSwag(Input{"f", []byte(swagText)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("1\n0\n"))
	f.Add([]byte(tasks[1].Hash + "\r\n0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		places, err := listedTasks(Input{"list", b}, "f", tasks)
		if (err == nil) != (len(places) > 0) || len(places) > len(tasks) {
			t.Fatalf("%v, %v", places, err)
		}
	})
}

func TestMoreThanThereIsIsSaid(t *testing.T) {
	tok := shippedTokenizer(t)
	h, err := NewHellaSwag(tok, builtinInput(t, "gloss-swag.txt"), TaskOptions{Tasks: 401})
	if err != nil || len(h.Tasks) != 400 || len(h.Warnings) != 1 || !strings.Contains(h.Warnings[0], "401 tasks are wanted, it has 400") {
		t.Errorf("hellaswag: %v, %v", h.Warnings, err)
	}
	w, err := NewWinogrande(tok, builtinInput(t, "gloss-grande.csv"), TaskOptions{Tasks: 500})
	if err != nil || len(w.Tasks) != 400 || len(w.Warnings) != 1 {
		t.Errorf("winogrande: %v, %v", w.Warnings, err)
	}
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{Chunks: 1000})
	if err != nil || p.Chunks != 157 || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "1000 chunks are wanted") || !strings.Contains(p.Warnings[0], "make 157") {
		t.Errorf("perplexity: %d chunks, %q, %v", p.Chunks, p.Warnings, err)
	}
}

func TestDoubtfulResultsAreSaid(t *testing.T) {
	chunk := func(nll float64) []Chunk { return []Chunk{{kindChunk, 1, 10, 10 * nll, 10*nll*nll + 1}} }
	p := &Perplexity{vocab: 2048}
	swag := func(right, n int) []HellaSwagItem {
		items := make([]HellaSwagItem, n)
		for i := right; i < n; i++ {
			items[i].Pick = 1
		}
		return items
	}
	choices := make([]ChoiceItem, 100) // two answers each: all right is no luck, half is
	for i := range choices {
		choices[i].Scores = make([]float32, 2)
	}
	half := slices.Clone(choices)
	for i := range 50 {
		half[i].Pick = 1
	}
	for _, c := range []struct {
		name   string
		doubts []string
		want   string // "" for none
	}{
		{"perplexity 2047", p.Doubts(chunk(7.6241)), ""},
		{"perplexity 2051", p.Doubts(chunk(7.6261)), "exceeds the 2048 tokens"},
		{"hellaswag 50 of 100", new(HellaSwag).Doubts(swag(50, 100)), ""},
		{"hellaswag 30 of 100", new(HellaSwag).Doubts(swag(30, 100)), "30.00% over 100 tasks cannot be told"},
		{"hellaswag 5 of 100", new(HellaSwag).Doubts(swag(5, 100)), "below the 25.00%"},
		{"hellaswag nothing", new(HellaSwag).Doubts(nil), ""},
		{"choice all", new(Choice).Doubts(choices), ""},
		{"choice half", new(Choice).Doubts(half), "50.00% of blind guesses"},
	} {
		if c.want == "" && len(c.doubts) != 0 || c.want != "" && (len(c.doubts) != 1 || !strings.Contains(c.doubts[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.name, c.doubts, c.want)
		}
	}
}

func TestWinograndeResultIsByTheRuleAskedFor(t *testing.T) {
	items := make([]WinograndeItem, 100)
	for i := range items { // upstream's rule is right in all, the corrected one in 60
		items[i] = WinograndeItem{N: i + 1, Gold: 1, Pick: 1, CorrectedPick: 1 + i/60, Scores: [2]float32{-1, -2}, Corrected: [2]float32{-3, -4}}
	}
	for _, c := range []struct {
		corrected bool
		want      []string
	}{
		{false, []string{"1\t100.0000\t -1.000000   -2.000000  1  1\n", "Final Winogrande score(100 tasks): 100.0000 +/- 0.0000\n"}},
		{true, []string{"100\t60.0000\t -3.000000   -4.000000  2  1\n", "Final Winogrande score(100 tasks): 60.0000 +/- 4.9237\n", "By upstream's rule: 100.0000 +/- 0.0000\n"}},
	} {
		w := &Winogrande{options: TaskOptions{Corrected: c.corrected}}
		var b bytes.Buffer
		if err := w.Write(&b, items); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.want {
			if !strings.Contains(b.String(), s) {
				t.Errorf("corrected %v: no %q in the output, which ends %q", c.corrected, s, b.String()[b.Len()-200:])
			}
		}
		if strings.Contains(b.String(), "By upstream") != c.corrected {
			t.Errorf("corrected %v: upstream's result must be given beside the corrected one only", c.corrected)
		}
	}
	if (&Winogrande{}).Doubts(items) != nil {
		t.Error("doubts about all right")
	}

	tok := shippedTokenizer(t)
	for _, corrected := range []bool{false, true} {
		w, err := NewWinogrande(tok, Input{"w.csv", []byte(strings.TrimSuffix(winoCSV, "\n\n"))}, TaskOptions{Corrected: corrected})
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.Run(t.Context(), newHashModel(tok.VocabSize(), 512), nil, func(WinograndeItem) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		// The last row of a file without an empty line counts by the corrected rule alone.
		want, rows := "upstream", 2
		if corrected {
			want, rows = "corrected", 3
		}
		if len(got) != rows || got[0].Rule != want || fmt.Sprint(len(w.Warnings)) != fmt.Sprint(3-rows) {
			t.Errorf("corrected %v: %d tasks by %q, warnings %q", corrected, len(got), got[0].Rule, w.Warnings)
		}
	}
}
