package kvcache

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/gguf"

	"github.com/google/go-cmp/cmp"
)

func stateMemory(t testing.TB, cells, seqs int) *Memory {
	t.Helper()
	m, err := New(Layout{
		Attention: []Layer{{Index: 0, Heads: 1, DimK: 4, DimV: 4}, {Index: 2, Heads: 1, DimK: 4, DimV: 4, Window: 2}},
		Recurrent: []RecurrentLayer{{Index: 1, Conv: 2, State: 3}},
	}, Params{Cells: cells, UBatch: cells, Seqs: seqs, TypeK: gguf.F32, TypeV: gguf.F16})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// filled is a memory with something in every part of it.
func filled(t testing.TB) *Memory {
	t.Helper()
	m := stateMemory(t, 16, 2)
	for _, b := range []struct {
		pos  []int32
		seqs []SeqSet
	}{{[]int32{0, 1}, []SeqSet{SetOf(0, 1), SetOf(0, 1)}}, {[]int32{2, 2, 3}, []SeqSet{SetOf(0), SetOf(1), SetOf(1)}}} {
		if err := m.Place(b.pos, b.seqs); err != nil {
			t.Fatal(err)
		}
		for i := range b.pos {
			x := float32(i) + float32(len(b.pos))
			for _, layer := range []int{0, 2} {
				m.Store(layer).Put(i, []float32{x, 1, 2, 3}, []float32{4, 5, x, 7})
			}
		}
		for _, run := range m.Runs() {
			s := m.States(1)
			s.Start(run)
			s.State(run.Slot)[0] += float32(run.To)
			s.Conv(run.Slot)[1] -= float32(run.To)
		}
	}
	return m
}

func saved(t testing.TB, m *Memory) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRestoredMemoryIsTheSavedOne(t *testing.T) {
	m := filled(t)
	want := saved(t, m)
	for _, cells := range []int{16, 24} {
		n := stateMemory(t, cells, 2)
		if err := n.Restore(bytes.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, saved(t, n)); diff != "" {
			t.Errorf("restored into %d cells and saved again: %s", cells, diff)
		}
		for seq := range int32(2) {
			if n.Last(seq) != m.Last(seq) {
				t.Errorf("sequence %d: last position %d, want %d", seq, n.Last(seq), m.Last(seq))
			}
		}
	}
}

func TestRestoreRefusesWhatDoesNotFit(t *testing.T) {
	b := saved(t, filled(t))
	for name, m := range map[string]*Memory{"too few cells": stateMemory(t, 4, 2), "too few sequences": stateMemory(t, 16, 1)} {
		if err := m.Restore(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if m.Last(0) != -1 {
			t.Errorf("%s: the refused memory is not empty", name)
		}
	}
	for n := range len(b) {
		m := stateMemory(t, 16, 2)
		if err := m.Restore(bytes.NewReader(b[:n])); err == nil {
			t.Fatalf("cut after %d of %d bytes: accepted", n, len(b))
		}
	}
}

func TestRestoreRefusesDamage(t *testing.T) {
	whole := saved(t, filled(t))
	const cell = 40                // bytes of a used cell, the first behind 8 bytes
	recurrent := len(whole) - 2*20 // behind it two states of 5 numbers
	sequences, states := recurrent-40, recurrent-20
	for _, tt := range []struct {
		at    int
		bytes []byte
		err   string
	}{
		{8 + cell, []byte{0, 0, 0, 0}, "damaged state: cell 0 after cell 0"},
		{8, []byte{16, 0, 0, 0}, "the saved state uses cell 16, the cache has 16"},
		{8 + 4, []byte{0, 0, 0, 0x80}, "damaged state: cell 0 has position -2147483648"},
		{8 + 8, make([]byte, 32), "damaged state: cell 0 has position 0 and 0 sequences"},
		{sequences, []byte{3, 0, 0, 0}, "the saved state holds 3 sequences, the context has 2"},
		{sequences + 4, []byte{2, 0, 0, 0}, "the saved state holds sequence 2, the context has 2"},
		{sequences + 8, []byte{255, 255, 255, 255}, "the saved state uses recurrent state -1, the context has 2"},
		{states, []byte{255, 255, 255, 255}, "the saved state holds 4294967295 states, the context has 2"},
		{states + 4, []byte{2, 0, 0, 0}, "the saved state holds state 2, the context has 2"},
	} {
		b := slices.Concat(whole[:tt.at], tt.bytes, whole[tt.at+len(tt.bytes):])
		if err := stateMemory(t, 16, 2).Restore(bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("error %v, want %q", err, tt.err)
		}
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(saved(f, filled(f)))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := stateMemory(t, 16, 2)
		if m.Restore(bytes.NewReader(b)) == nil {
			// What was accepted can be used.
			for seq := range int32(2) {
				_ = m.Place([]int32{m.Last(seq) + 1}, []SeqSet{SetOf(seq)})
			}
			m.Clear()
		}
	})
}
