package kvcache

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"attnbudget/engine/kernel"

	"github.com/google/go-cmp/cmp"
)

// matrix draws what queries see: a row a query, a column a cell, x where it is seen.
func matrix(visible [][]kernel.Span, cells int) string {
	var b strings.Builder
	for _, spans := range visible {
		row := []byte(strings.Repeat("0", cells))
		for _, s := range spans {
			for i := s.From; i < s.To; i++ {
				row[i] = 'x'
			}
		}
		fmt.Fprintf(&b, "%s\n", row)
	}
	return b.String()
}

func dedent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(s)) {
		fmt.Fprintf(&b, "%s\n", strings.TrimSpace(line))
	}
	return b.String()
}

// tiny is a memory with one attention layer.
func tiny(t *testing.T, cells, window, seqs int) *Memory {
	t.Helper()
	m, err := New(Layout{Attention: []Layer{{Index: 0, Heads: 1, DimK: 4, DimV: 4, Window: window}}},
		Params{Cells: cells, UBatch: cells, Seqs: seqs})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// place puts tokens at positions from, from+1, ... of seqs.
func place(t *testing.T, m *Memory, from int32, n int, seqs ...int32) {
	t.Helper()
	var pos []int32
	var sets []SeqSet
	for i := range n {
		pos, sets = append(pos, from+int32(i)), append(sets, SetOf(seqs...))
	}
	if err := m.Place(pos, sets); err != nil {
		t.Fatal(err)
	}
}

func sees(t *testing.T, m *Memory, want string) {
	t.Helper()
	c := m.caches[0]
	if diff := cmp.Diff(dedent(want), matrix(c.visible, len(c.cells.pos))); diff != "" {
		t.Errorf("visibility (-want +got):\n%s", diff)
	}
}

func TestTokensSeeEarlierPositions(t *testing.T) {
	m := tiny(t, 8, 0, 1)
	place(t, m, 0, 3, 0)
	sees(t, m, `
		x0000000
		xx000000
		xxx00000`)
	place(t, m, 3, 2, 0)
	sees(t, m, `
		xxxx0000
		xxxxx000`)
}

func TestWindowHidesOldPositions(t *testing.T) {
	m := tiny(t, 8, 3, 1)
	place(t, m, 0, 6, 0)
	sees(t, m, `
		x0000000
		xx000000
		xxx00000
		0xxx0000
		00xxx000
		000xxx00`)
}

func TestUpstreamLooksAtCellsInSteps(t *testing.T) {
	m := tiny(t, 600, 0, 2)
	for _, c := range []struct{ tokens, want int }{{1, 256}, {255, 256}, {1, 512}, {255, 512}, {88, 600}} {
		place(t, m, m.Last(0)+1, c.tokens, 0)
		if got := m.Store(0).Looked(); got != c.want {
			t.Errorf("after %d positions: %d cells, want %d", m.Last(0)+1, got, c.want)
		}
	}
	if err := m.Remove(0, 300, -1); err != nil {
		t.Fatal(err)
	}
	place(t, m, 0, 1, 1)
	if got := m.Store(0).Looked(); got != 512 {
		t.Errorf("after a removal: %d cells, want 512", got)
	}
	if err := m.Remove(0, 0, 200); err != nil {
		t.Fatal(err)
	}
	if got := m.Store(0).Looked(); got != 512 {
		t.Errorf("with a gap in front: %d cells, want 512", got)
	}
}

func TestSequencesDoNotSeeEachOther(t *testing.T) {
	m := tiny(t, 8, 0, 2)
	place(t, m, 0, 2, 0)
	place(t, m, 0, 2, 1)
	place(t, m, 2, 1, 0)
	sees(t, m, `xx00x000`)
	place(t, m, 2, 1, 1)
	sees(t, m, `00xx0x00`)
}

func TestSharedPrefix(t *testing.T) {
	m := tiny(t, 8, 0, 3)
	place(t, m, 0, 2, 0, 1, 2)
	if err := m.Place([]int32{2, 2, 2, 3}, []SeqSet{SetOf(0), SetOf(1), SetOf(2), SetOf(1)}); err != nil {
		t.Fatal(err)
	}
	sees(t, m, `
		xxx00000
		xx0x0000
		xx00x000
		xx0x0x00`)
}

func TestCopiedAndRemovedSequences(t *testing.T) {
	m := tiny(t, 8, 0, 2)
	place(t, m, 0, 4, 0)
	if err := m.Copy(0, 1, 0, 3); err != nil {
		t.Fatal(err)
	}
	place(t, m, 3, 1, 1)
	sees(t, m, `xxx0x000`)
	if err := m.Remove(0, 2, -1); err != nil {
		t.Fatal(err)
	}
	if m.Last(0) != 1 || m.Last(1) != 3 {
		t.Errorf("last positions %d and %d, want 1 and 3", m.Last(0), m.Last(1))
	}
	place(t, m, 2, 2, 0) // the freed cell 3 is used again
	sees(t, m, `
		xx0x0000
		xx0x0x00`)
	m.Clear()
	if m.Last(0) != -1 || m.Last(1) != -1 {
		t.Error("cleared sequences hold positions")
	}
	place(t, m, 0, 1, 1)
	sees(t, m, `x0000000`)
}

func TestWindowCacheReusesWhatNoTokenCanSee(t *testing.T) {
	m := tiny(t, 6, 3, 1)
	place(t, m, 0, 6, 0)
	place(t, m, 6, 2, 0) // positions 0 and 1 are behind the window of position 6
	sees(t, m, `
		x000xx
		xx000x`)
	if err := m.Room(6); err != nil {
		t.Errorf("there is room for whatever comes: %v", err)
	}
	place(t, m, 8, 3, 0)
	sees(t, m, `
		xxx000
		0xxx00
		00xxx0`)
	m = tiny(t, 6, 3, 1)
	place(t, m, 0, 6, 0)
	place(t, m, 6, 4, 0) // of what is held position 6 sees 4 and 5 alone
}

// Where a later position of a sequence is lost than some that another sequence still needs, those are lost to it too.
func TestWindowCacheKeepsNoHoles(t *testing.T) {
	m := tiny(t, 6, 3, 2)
	place(t, m, 0, 2, 0, 1)
	place(t, m, 2, 4, 0)
	place(t, m, 6, 1, 0) // in place of position 2: sequence 1 needs 0 and 1
	if err := m.Remove(0, 3, -1); !errors.Is(err, ErrHistory) {
		t.Errorf("position 3 cannot do without position 2: error %v", err)
	}
	place(t, m, 2, 1, 1)
	sees(t, m, `xx0x00`)
}

func TestClearedCellsAreTakenFromTheFirstOn(t *testing.T) {
	m := tiny(t, 8, 0, 1)
	place(t, m, 0, 3, 0)
	m.Clear()
	place(t, m, 0, 2, 0)
	sees(t, m, `
		x0000000
		xx000000`)
}

func TestWindowCacheReusesSharedCells(t *testing.T) {
	m := tiny(t, 6, 2, 2)
	place(t, m, 0, 4, 0, 1)
	place(t, m, 4, 1, 0)
	place(t, m, 4, 1, 1)
	place(t, m, 5, 2, 0) // the first positions are behind the windows of both
	sees(t, m, `
		x000x0
		xx0000`)
}

func TestFullCacheRefusesAndStaysAsItWas(t *testing.T) {
	m := tiny(t, 4, 0, 1)
	place(t, m, 0, 3, 0)
	err := m.Place([]int32{3, 4}, []SeqSet{SetOf(0), SetOf(0)})
	if err == nil || !strings.Contains(err.Error(), "the KV cache is full: 2 tokens, 1 of 4 cells free") {
		t.Fatalf("error %v", err)
	}
	if m.Room(2) == nil || m.Room(1) != nil {
		t.Error("Room disagrees")
	}
	place(t, m, 3, 1, 0)
	sees(t, m, `xxxx`)
}

func TestRemovingATailWhoseWindowIsGone(t *testing.T) {
	m := tiny(t, 6, 3, 1)
	place(t, m, 0, 6, 0)
	place(t, m, 6, 2, 0)
	if err := m.Remove(0, 3, -1); err == nil || !strings.Contains(err.Error(), "the sliding window before it has been given up") {
		t.Errorf("error %v", err)
	}
	if m.Last(0) != 7 {
		t.Error("a refused removal removed")
	}
	if err := m.Remove(0, 4, -1); err != nil { // 2 and 3 are still held
		t.Error(err)
	}
	if err := m.Remove(0, 0, -1); err != nil || m.Last(0) != -1 {
		t.Errorf("removing everything: %v, last %d", err, m.Last(0))
	}
	place(t, m, 0, 6, 0)
	place(t, m, 6, 2, 0)
	if err := m.Remove(0, 3, 5); err != nil || m.Last(0) != 7 {
		t.Errorf("removing from the middle: %v, last %d", err, m.Last(0))
	}
}

func TestCopyingAHeadWhoseWindowIsGone(t *testing.T) {
	m := tiny(t, 6, 3, 2)
	place(t, m, 0, 6, 0)
	place(t, m, 6, 2, 0)
	if err := m.Copy(0, 1, 0, 3); !errors.Is(err, ErrHistory) || !strings.Contains(err.Error(), "the sliding window before it has been given up") {
		t.Errorf("error %v", err)
	}
	if m.Last(1) != -1 {
		t.Error("a refused copy copied")
	}
	if err := m.Copy(1, 0, 0, -1); err != nil || m.Last(0) != 7 {
		t.Errorf("copying nothing: %v, last %d", err, m.Last(0))
	}
	if err := m.Copy(0, 1, 0, 5); err != nil || m.Last(1) != 4 { // 3 and 4 are still held
		t.Errorf("copying up to what is held: %v, last %d", err, m.Last(1))
	}
	if err := m.Copy(0, 1, 0, -1); err != nil || m.Last(1) != 7 {
		t.Errorf("copying everything: %v, last %d", err, m.Last(1))
	}
}

func TestSeqSet(t *testing.T) {
	s := SetOf(0, 63, 64, 255)
	if s.Len() != 4 || s.First() != 0 || !s.Has(64) || s.Has(65) || s.Empty() {
		t.Errorf("set %v", s)
	}
	var all []int32
	for seq := range s.All {
		all = append(all, seq)
	}
	if diff := cmp.Diff([]int32{0, 63, 64, 255}, all); diff != "" {
		t.Error(diff)
	}
	for _, seq := range all {
		s.Remove(seq)
	}
	if !s.Empty() || s.First() != -1 {
		t.Errorf("set %v", s)
	}
}
