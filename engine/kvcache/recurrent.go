package kvcache

import "fmt"

// States are the recurrent states of one context. A sequence has at most one slot; sequences with the same history share
// one, and it is copied when they part.
type States struct {
	layers []*LayerStates
	seqs   slots
	runs   []Run // of the tokens placed last
}

// LayerStates are the states of one recurrent layer, one a slot.
type LayerStates struct {
	RecurrentLayer
	conv, state []float32 // [slot][Conv], [slot][State]
}

// Conv is the remembered inputs of the convolution of a slot.
func (l *LayerStates) Conv(slot int) []float32 {
	return l.conv[slot*l.RecurrentLayer.Conv : (slot+1)*l.RecurrentLayer.Conv]
}

// State is the delta state of a slot.
func (l *LayerStates) State(slot int) []float32 {
	return l.state[slot*l.RecurrentLayer.State : (slot+1)*l.RecurrentLayer.State]
}

// Run is a run of consecutive tokens of a batch that advance one state.
type Run struct {
	Slot     int
	From, To int // tokens [From, To) of the batch
	start    int // slot whose state the run starts from; fresh = zeros, Slot = its own
}

const fresh = -1

// Start makes the state of the run's slot what the run starts from. To be called for every layer before the run's tokens.
func (l *LayerStates) Start(r Run) {
	switch r.start {
	case r.Slot:
	case fresh:
		clear(l.Conv(r.Slot))
		clear(l.State(r.Slot))
	default:
		copy(l.Conv(r.Slot), l.Conv(r.start))
		copy(l.State(r.Slot), l.State(r.start))
	}
}

// slots says which slot each sequence uses and how far that slot has got.
type slots struct {
	of   [MaxSeqs]int32 // slot of a sequence, -1 = none
	refs []int          // sequences a slot
	last []int32        // position of the last token a slot has seen
}

func newStates(l Layout, p Params) *States {
	if len(l.Recurrent) == 0 {
		return nil
	}
	s := &States{seqs: slots{refs: make([]int, p.Seqs), last: make([]int32, p.Seqs)}}
	for _, r := range l.Recurrent {
		s.layers = append(s.layers, &LayerStates{
			RecurrentLayer: r,
			conv:           make([]float32, p.Seqs*r.Conv),
			state:          make([]float32, p.Seqs*r.State),
		})
	}
	s.clear()
	return s
}

func (s *States) clear() {
	clear(s.seqs.refs)
	for i := range s.seqs.of {
		s.seqs.of[i] = -1
	}
}

// check refuses tokens whose sequences do not share one history: a recurrent state is of exactly one.
func (s *States) check(seqs []SeqSet) error {
	of := s.seqs.of // a copy: what the batch itself would make of it
	next := int32(len(s.seqs.refs))
	for i, set := range seqs {
		slot := of[set.First()]
		for seq := range set.All {
			if of[seq] != slot {
				return fmt.Errorf("kvcache: token %d of the batch belongs to sequences %d and %d, whose histories differ; a recurrent model needs a token for each", i, set.First(), seq)
			}
		}
		for seq := range set.All {
			of[seq] = next
		}
		next++
	}
	return nil
}

// place assigns states to the tokens. check has accepted them.
func (s *States) place(pos []int32, seqs []SeqSet) {
	s.runs = s.runs[:0]
	for i, set := range seqs {
		slot, start := s.seqs.claim(set)
		if n := len(s.runs); n > 0 && start == slot && s.runs[n-1].Slot == slot {
			s.runs[n-1].To = i + 1
		} else {
			s.runs = append(s.runs, Run{Slot: slot, From: i, To: i + 1, start: start})
		}
		s.seqs.last[slot] = pos[i]
	}
}

// claim returns the slot that a token of set advances, and where its state comes from.
func (s *slots) claim(set SeqSet) (slot, start int) {
	old := int(s.of[set.First()])
	if old >= 0 && s.refs[old] == set.Len() {
		return old, old
	}
	slot = s.unused()
	for seq := range set.All {
		s.assign(seq, slot)
	}
	return slot, old // old is fresh, -1, when the sequences had none
}

// unused finds a slot without sequences. There is one whenever a sequence needs it: every used slot has a sequence of its
// own, and the sequences in need have none or share theirs.
func (s *slots) unused() int {
	for slot, refs := range s.refs {
		if refs == 0 {
			return slot
		}
	}
	panic("kvcache: more recurrent states than sequences")
}

func (s *slots) assign(seq int32, slot int) {
	s.release(seq)
	s.of[seq] = int32(slot)
	s.refs[slot]++
}

// copy makes dst use the slot of src, none if src has none.
func (s *slots) copy(src, dst int32) {
	s.release(dst)
	if slot := s.of[src]; slot >= 0 {
		s.assign(dst, int(slot))
	}
}

func (s *slots) release(seq int32) {
	if old := s.of[seq]; old >= 0 {
		s.refs[old]--
		s.of[seq] = -1
	}
}

// lastOf is the position of the last token of seq, -1 when it has none.
func (s *slots) lastOf(seq int32) int32 {
	if slot := s.of[seq]; slot >= 0 {
		return s.last[slot]
	}
	return -1
}
