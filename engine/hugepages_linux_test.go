package engine

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"attnbudget/engine/gguf"

	"golang.org/x/sys/unix"
)

func TestMovedWeightsAreTheSameAtTheSameAddresses(t *testing.T) {
	const size = 5 * hugePage
	content := make([]byte, size)
	r := rand.NewChaCha8([32]byte{7})
	_, _ = r.Read(content)
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	head := toBound(b, hugePage)
	part := b[head : head+3*hugePage]
	if !moveToHugePages(part) {
		t.Skip("the system does not move pages")
	}
	if !bytes.Equal(b, content) {
		t.Error("the content has changed")
	}
	// The file's pages are gone from the part, and only from there.
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(part, content[head:head+3*hugePage]) {
		t.Error("the part still shows the file")
	}
	if rest := b[head+3*hugePage:]; !bytes.Equal(rest, make([]byte, len(rest))) {
		t.Error("the rest no longer shows the file")
	}
	if err := unix.Munmap(b); err != nil {
		t.Errorf("unmapping the whole: %v", err)
	}
}

func TestPiecesCoverTheWeightsOnceAndMoveWholeHugePages(t *testing.T) {
	var sum int
	for _, move := range []bool{false, true} {
		m, err := Open("testdata/conformance/models/llama-tiny.gguf", Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		// One tensor of the size of a model in place of the small ones, which fill no huge page.
		big := make([]byte, 3*touchedAtOnce+5*hugePage+12345)
		m.file.Tensors = []*gguf.Tensor{
			{Name: "a", Data: big[:hugePage+100]}, {Name: "token_embd.weight", Data: big[hugePage+128 : 2*hugePage]}, {Name: "b", Data: big[2*hugePage:]},
		}
		sum = 0
		moved := 0
		for _, p := range m.pieces(move) {
			sum += len(p.bytes)
			if p.move {
				moved += len(p.bytes)
				if toBound(p.bytes, hugePage) != 0 || len(p.bytes)%hugePage != 0 {
					t.Errorf("a piece of %d bytes begins %d bytes before a bound", len(p.bytes), toBound(p.bytes, hugePage))
				}
			}
		}
		if want := len(big); sum < want-128 || sum > want {
			t.Errorf("the pieces have %d bytes, want %d without the gap", sum, want)
		}
		if !move && moved > 0 || move && moved < 3*touchedAtOnce {
			t.Errorf("move %v: %d bytes are to be moved", move, moved)
		}
	}
}
