package meter

import (
	"testing"
	"testing/quick"
	"time"
)

func TestWorkIsCountedByKindAndLayer(t *testing.T) {
	m := New(2)
	m.Begin()
	m.Add(Other, 10, 1)
	m.Enter(0)
	m.Add(Attention, 100, 20)
	m.Enter(1)
	m.Add(Attention, 100, 20)
	m.Enter(2)
	m.Add(Head, 1000, 300)
	for _, c := range []struct {
		layer int
		kind  Kind
		want  Count
	}{
		{-1, Other, Count{Calls: 1, Bytes: 10, Operations: 1}},
		{0, Attention, Count{Calls: 1, Bytes: 100, Operations: 20}},
		{0, Head, Count{}},
		{2, Head, Count{Calls: 1, Bytes: 1000, Operations: 300}},
	} {
		if got := m.Layer(c.layer)[c.kind]; got != c.want {
			t.Errorf("layer %d, %v: %+v, want %+v", c.layer, c.kind, got, c.want)
		}
	}
	total := m.Total()
	if want := (Count{Calls: 2, Bytes: 200, Operations: 40}); total[Attention] != want {
		t.Errorf("attention of all layers: %+v, want %+v", total[Attention], want)
	}
	if got, want := total.Total(), (Count{Calls: 4, Bytes: 1210, Operations: 341}); got != want {
		t.Errorf("all work: %+v, want %+v", got, want)
	}
	m.Reset()
	if total = m.Total(); total.Total() != (Count{}) {
		t.Errorf("after Reset: %+v", total)
	}
}

func TestTimesAndEventsAddUpToThoseOfThePass(t *testing.T) {
	m := New(0)
	var now Events
	m.Clock, m.Events = true, func() Events { return now }
	now = Events{1000, 500} // before the pass
	start := time.Now()
	m.Begin()
	time.Sleep(2 * time.Millisecond)
	now = Events{1500, 700}
	m.Add(Matrices, 0, 0)
	now = Events{1600, 790}
	m.Add(Norms, 0, 0)
	elapsed := time.Since(start)
	total := m.Total()
	if total[Matrices].Time < 2*time.Millisecond || total.Total().Time > elapsed {
		t.Errorf("matrices %v, all %v of at most %v", total[Matrices].Time, total.Total().Time, elapsed)
	}
	if *total[Matrices].Events != (Events{500, 200}) || *total[Norms].Events != (Events{100, 90}) || *total.Total().Events != (Events{600, 290}) {
		t.Errorf("events of matrices %v, norms %v, all %v", *total[Matrices].Events, *total[Norms].Events, *total.Total().Events)
	}
}

func TestNilMeterCountsNothing(t *testing.T) {
	var m *Meter
	m.Begin()
	m.Enter(3)
	m.Add(Other, 1, 1)
}

func TestCellsAreCountedOnce(t *testing.T) {
	type span struct{ From, Length uint16 }
	property := func(spans []span) bool {
		m, seen := New(0), map[int]bool{}
		m.SeeCells(0, 1000)
		m.ForgetCells()
		for _, s := range spans {
			from, to := int(s.From)%3000, int(s.From)%3000+int(s.Length)%700
			m.SeeCells(from, to)
			for c := from; c < to; c++ {
				seen[c] = true
			}
		}
		return m.CellsSeen() == len(seen)
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	m := New(1)
	m.SeeCells(0, 4096)
	if n := testing.AllocsPerRun(100, func() {
		m.Begin()
		m.Enter(0)
		m.ForgetCells()
		m.SeeCells(5, 4096)
		m.Add(Attention, m.CellsSeen(), 1)
	}); n != 0 {
		t.Errorf("%v allocations a pass", n)
	}
}
