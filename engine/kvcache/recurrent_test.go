package kvcache

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func recurrentMemory(t *testing.T, seqs int) *Memory {
	t.Helper()
	m, err := New(Layout{
		Attention: []Layer{{Index: 1, Heads: 1, DimK: 4, DimV: 4}},
		Recurrent: []RecurrentLayer{{Index: 0, Conv: 1, State: 1}},
	}, Params{Cells: 64, UBatch: 64, Seqs: seqs})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// history runs a batch through a pretend recurrent layer whose state is a number that every token multiplies by 10 and adds
// its name to. It returns the states after every token: "1 12 13".
func history(t *testing.T, m *Memory, pos []int32, seqs []SeqSet, names ...float32) string {
	t.Helper()
	if err := m.Place(pos, seqs); err != nil {
		t.Fatal(err)
	}
	s := m.States(0)
	var out []string
	for _, run := range m.Runs() {
		s.Start(run)
		for i := run.From; i < run.To; i++ {
			state, conv := s.State(run.Slot), s.Conv(run.Slot)
			state[0], conv[0] = state[0]*10+names[i], conv[0]*10+names[i]
			if out = append(out, fmt.Sprint(state[0])); conv[0] != state[0] {
				t.Errorf("the inputs of the convolution are of %v, the state of %v", conv[0], state[0])
			}
		}
	}
	return strings.Join(out, " ")
}

func TestRecurrentStatesFollowTheirSequences(t *testing.T) {
	m := recurrentMemory(t, 3)
	steps := []struct {
		pos   []int32
		seqs  []SeqSet
		names []float32
		want  string
	}{
		{[]int32{0, 1}, []SeqSet{SetOf(0), SetOf(0)}, []float32{1, 2}, "1 12"},
		{[]int32{0, 2, 1}, []SeqSet{SetOf(1), SetOf(0), SetOf(1)}, []float32{5, 3, 6}, "5 123 56"},
	}
	for i, s := range steps {
		if got := history(t, m, s.pos, s.seqs, s.names...); got != s.want {
			t.Errorf("step %d: states %q, want %q", i, got, s.want)
		}
	}
	if m.Last(0) != 2 || m.Last(1) != 1 || m.Last(2) != -1 {
		t.Errorf("last positions %d %d %d", m.Last(0), m.Last(1), m.Last(2))
	}
}

func TestRecurrentStatesPartAfterASharedPrefix(t *testing.T) {
	m := recurrentMemory(t, 3)
	all := SetOf(0, 1, 2)
	got := history(t, m, []int32{0, 1, 2, 2, 2, 3}, []SeqSet{all, all, SetOf(0), SetOf(1), SetOf(2), SetOf(1)}, 1, 2, 3, 4, 5, 6)
	if want := "1 12 123 124 125 1246"; got != want {
		t.Errorf("states %q, want %q", got, want)
	}
}

func TestRecurrentStatesAreCopiedWhole(t *testing.T) {
	m := recurrentMemory(t, 2)
	history(t, m, []int32{0, 1}, []SeqSet{SetOf(0), SetOf(0)}, 1, 2)
	if err := m.Copy(0, 1, 0, 1); !errors.Is(err, ErrHistory) {
		t.Errorf("copying a part: %v", err)
	}
	if err := m.Copy(0, 1, 0, -1); err != nil {
		t.Fatal(err)
	}
	if got := history(t, m, []int32{2, 2}, []SeqSet{SetOf(1), SetOf(0)}, 7, 8); got != "127 128" {
		t.Errorf("states after the copy %q", got)
	}
	if err := m.Remove(0, 1, -1); !errors.Is(err, ErrHistory) {
		t.Errorf("removing a part: %v", err)
	}
	if err := m.Remove(0, 0, -1); err != nil || m.Last(0) != -1 || m.Last(1) != 2 {
		t.Errorf("removing the whole: %v; last %d and %d", err, m.Last(0), m.Last(1))
	}
	if got := history(t, m, []int32{0}, []SeqSet{SetOf(0)}, 9); got != "9" {
		t.Errorf("a new sequence starts from %q", got)
	}
	m.Clear()
	if got := history(t, m, []int32{0, 0}, []SeqSet{SetOf(0), SetOf(1)}, 3, 4); got != "3 4" {
		t.Errorf("sequences of a cleared memory start from %q", got)
	}
}

func TestRecurrentStatesRefuseTokensOfDifferentHistories(t *testing.T) {
	m := recurrentMemory(t, 2)
	history(t, m, []int32{0}, []SeqSet{SetOf(0)}, 1)
	err := m.Place([]int32{1}, []SeqSet{SetOf(0, 1)})
	if err == nil || !strings.Contains(err.Error(), "token 0 of the batch belongs to sequences 0 and 1, whose histories differ") {
		t.Errorf("error %v", err)
	}
	if got := history(t, m, []int32{1}, []SeqSet{SetOf(0)}, 2); got != "12" {
		t.Errorf("the refused batch changed the state: %q", got)
	}
}

// A state can only be replaced whole; the keys and values beside it must not outlive it.
func TestACopyReplacesWhatARecurrentSequenceHeld(t *testing.T) {
	for _, source := range []int{0, 2} { // tokens of the sequence that is copied
		m := recurrentMemory(t, 2)
		history(t, m, []int32{0, 1, 2}, []SeqSet{SetOf(1), SetOf(1), SetOf(1)}, 1, 2, 3)
		for i := range source {
			history(t, m, []int32{int32(i)}, []SeqSet{SetOf(0)}, 5)
		}
		if err := m.Copy(0, 1, 0, -1); err != nil {
			t.Fatal(err)
		}
		history(t, m, []int32{m.Last(1) + 1}, []SeqSet{SetOf(1)}, 7)
		seen := 0
		for _, span := range m.Store(1).Visible()[0] {
			seen += span.To - span.From
		}
		if seen != source+1 {
			t.Errorf("a sequence of %d tokens sees %d cells after it became a copy of one of %d", 3, seen, source)
		}
	}
}
