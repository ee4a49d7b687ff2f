package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"attnbudget/engine/gguf"
)

// sampleBytes are read at the start, in the middle and at the end of every tensor.
const sampleBytes = 4096

// identity tells models apart without reading them whole: SHA-256 over the metadata that decide a forward pass, all
// tensor names, types and shapes, and samples of every tensor's data. It guards saved states against being loaded into
// another model by mistake; results are keyed by the fingerprint of the whole file instead.
func identity(f *gguf.File, o Options) string {
	h := sha256.New()
	fmt.Fprintf(h, "expand %v\n", o.ExpandF32)
	for _, key := range f.Keys {
		if v, ok := f.Value(key); ok && !strings.HasPrefix(key, "tokenizer.") && !strings.HasPrefix(key, "general.name") {
			fmt.Fprintf(h, "%s =", key)
			for x := range v.All() {
				fmt.Fprintf(h, " %v", x)
			}
			fmt.Fprintln(h)
		}
	}
	for _, t := range f.Tensors {
		fmt.Fprintf(h, "%s %s %v\n", t.Name, t.Type, t.Shape)
		sample(h, t.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func sample(w io.Writer, data []byte) {
	n := min(sampleBytes, len(data))
	for _, from := range []int{0, (len(data) - n) / 2, len(data) - n} {
		_ = binary.Write(w, binary.LittleEndian, int64(from))
		_, _ = w.Write(data[from : from+n])
	}
}
