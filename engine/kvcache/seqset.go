package kvcache

import "math/bits"

// MaxSeqs is the number of sequences a context may hold, upstream's limit.
const MaxSeqs = 256

// SeqSet is a set of sequence ids, 0 to MaxSeqs-1.
type SeqSet [MaxSeqs / 64]uint64

// SetOf makes a set.
func SetOf(seqs ...int32) SeqSet {
	var s SeqSet
	for _, q := range seqs {
		s.Add(q)
	}
	return s
}

// Add puts a sequence into the set.
func (s *SeqSet) Add(seq int32) { s[seq>>6] |= 1 << (seq & 63) }

// Remove takes a sequence out of the set.
func (s *SeqSet) Remove(seq int32) { s[seq>>6] &^= 1 << (seq & 63) }

// Has reports whether a sequence is in the set.
func (s SeqSet) Has(seq int32) bool { return s[seq>>6]&(1<<(seq&63)) != 0 }

// Empty reports whether the set has no member.
func (s SeqSet) Empty() bool { return s == SeqSet{} }

// Len is the number of members.
func (s SeqSet) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// First is the smallest member, -1 of an empty set.
func (s SeqSet) First() int32 {
	for i, w := range s {
		if w != 0 {
			return int32(i*64 + bits.TrailingZeros64(w))
		}
	}
	return -1
}

// All calls f for every member, ascending.
func (s SeqSet) All(f func(seq int32) bool) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			if !f(int32(i*64 + bits.TrailingZeros64(w))) {
				return
			}
		}
	}
}
