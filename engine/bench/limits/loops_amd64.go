//go:build !purego

package limits

import "golang.org/x/sys/cpu"

// best returns the loops for the widest vectors of this processor.
func best() loops {
	l := generic()
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return l
	}
	l.name, l.multiplyAdd, l.operations = "avx2", multiplyAddAVX2, 2*12*8
	l.read = func(b []byte) byte { return readAVX2(&b[0], len(b)) }
	if cpu.X86.HasAVX512F {
		l.name, l.multiplyAdd, l.operations = "avx512", multiplyAddAVX512, 2*12*16
	}
	return l
}
